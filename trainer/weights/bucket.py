"""Objects in an S3-compatible bucket. Needs the extra `s3`; credentials and endpoint come from boto3's own settings
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on).
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainer.weights.errors import BlobMissing, StoreUnavailable, WeightError

LEASE_SECONDS = 600.0
"""A publisher that was killed is waited for this long; nobody else may hold the right for longer without renewal."""
_LOCK = ".lock"


class BucketBlobs:
    def __init__(self, bucket: str, prefix: str = "", *, timeout: float = 30.0) -> None:
        """`timeout`: seconds that one connection or answer may take; boto3 tries three times."""
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise WeightError(
                f"s3://{bucket} needs boto3, which is not installed: pip install 'opencomposer[s3]'"
            ) from error
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        settings = Config(
            connect_timeout=timeout, read_timeout=timeout, retries={"max_attempts": 3, "mode": "standard"}
        )
        self._client: Any = boto3.client("s3", config=settings)

    @property
    def where(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def keys(self, prefix: str = "") -> Iterator[str]:
        with self._named(prefix, "listed"):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + prefix):
                for found in page.get("Contents", []):
                    key = found["Key"][len(self.prefix) :]
                    if not key.startswith("."):
                        yield key

    def read(self, key: str) -> bytes:
        data = io.BytesIO()
        with self._named(key, "read"):
            self._client.download_fileobj(self.bucket, self.prefix + key, data)  # large ones in parallel parts
        return data.getvalue()

    def write(self, key: str, data: bytes) -> None:
        with self._named(key, "written"):
            self._client.upload_fileobj(io.BytesIO(data), self.bucket, self.prefix + key)

    def delete(self, key: str) -> None:
        with self._named(key, "removed"):
            self._client.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A lease: an object that can be created once, and is taken over when its time is up."""
        owner = uuid.uuid4().hex
        if not self._take(owner):
            raise WeightError(
                f"another process is writing to {self.where}; stop it first (a killed one is forgotten after "
                f"{LEASE_SECONDS:.0f} s)"
            )
        try:
            yield
        finally:
            self.delete(_LOCK)

    def _take(self, owner: str) -> bool:
        body = json.dumps({"owner": owner, "until": time.time() + LEASE_SECONDS}).encode()
        if self._put_if(body, IfNoneMatch="*"):
            return True
        try:
            with self._named(_LOCK, "read"):
                held = self._client.get_object(Bucket=self.bucket, Key=self.prefix + _LOCK)
                until = json.loads(held["Body"].read())["until"]
        except BlobMissing:  # given back at this very moment
            return self._put_if(body, IfNoneMatch="*")
        return time.time() > until and self._put_if(body, IfMatch=held["ETag"])

    def _put_if(self, body: bytes, **condition: str) -> bool:
        from botocore.exceptions import ClientError

        try:
            with self._named(_LOCK, "written"):
                self._client.put_object(Bucket=self.bucket, Key=self.prefix + _LOCK, Body=body, **condition)
        except StoreUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and _code(cause) in (
                "PreconditionFailed",
                "412",
                "ConditionalRequestConflict",
            ):
                return False
            raise
        return True

    @contextmanager
    def _named(self, key: str, verb: str) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            if _code(error) in ("NoSuchKey", "404"):
                raise BlobMissing(f"{self.where}{key} does not exist") from error
            raise StoreUnavailable(
                f"weights at {self.where}{key} could not be {verb}: {error}; check the bucket and its rights"
            ) from error
        except (BotoCoreError, Boto3Error) as error:
            raise StoreUnavailable(
                f"weights at {self.where}{key} could not be {verb}: {error}; check the endpoint and the network"
            ) from error


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
