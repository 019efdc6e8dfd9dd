"""Objects in an S3-compatible bucket. Needs the extra `s3`; credentials and endpoint come from boto3's own settings
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from trainer.weights.storage.lease import LEASE_SECONDS, Lease
from trainer.weights.storage.s3 import connect, named

_LOCK = ".lock"
_WRITES = ("PutObject", "UploadPart", "CompleteMultipartUpload", "DeleteObject")


class BucketBlobs:
    def __init__(self, bucket: str, prefix: str = "", *, timeout: float = 30.0, lease: float = LEASE_SECONDS) -> None:
        """`timeout`: seconds for one connection or answer; boto3 tries three times. `lease`: seconds after which a
        killed writer's lease expires.
        """
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._timeout = timeout
        self._lease_seconds = lease
        self._lease: Lease | None = None
        self._client = connect(bucket, timeout=timeout, attempts=3)
        for request in _WRITES:
            self._client.meta.events.register(f"before-send.s3.{request}", self._may_write)

    @property
    def where(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def keys(self, prefix: str = "") -> Iterator[str]:
        return (key for key, _ in self._listed(prefix))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        return dict(self._listed(prefix))

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        with named(self.where + prefix, "listed"):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + prefix):
                for found in page.get("Contents", []):
                    key = found["Key"][len(self.prefix) :]
                    if not key.startswith("."):
                        yield key, int(found["Size"])

    def read(self, key: str) -> bytes:
        data = io.BytesIO()
        with named(self.where + key, "read"):
            self._client.download_fileobj(self.bucket, self.prefix + key, data)  # large ones in parallel parts
        return data.getvalue()

    def write(self, key: str, data: bytes) -> None:
        with named(self.where + key, "written"):
            self._client.upload_fileobj(io.BytesIO(data), self.bucket, self.prefix + key)

    def delete(self, key: str) -> None:
        with named(self.where + key, "removed"):
            self._client.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    @contextmanager
    def writing(self) -> Iterator[None]:
        lease = Lease(self._lock_client, self.bucket, self.prefix + _LOCK, seconds=self._lease_seconds)
        with lease.held():
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def still_writing(self) -> None:
        if self._lease:
            self._lease.prove()

    def _may_write(self, **_: Any) -> None:
        """Runs just before each attempt of each request: boto3 retries, and large objects take many requests."""
        if self._lease:
            self._lease.check()

    @cached_property
    def _lock_client(self) -> Any:
        """Client with a timeout short enough for a second attempt at a renewal."""
        return connect(self.bucket, timeout=min(self._timeout, self._lease_seconds / 4), attempts=2)
