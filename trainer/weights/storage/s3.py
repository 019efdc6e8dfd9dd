"""An S3-compatible endpoint: clients of it, and its failures in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainer.errors import BlobChanged, BlobMissing, StoreUnavailable, WeightError

_MISSING = ("NoSuchKey", "404")
_CHANGED = ("PreconditionFailed", "412", "ConditionalRequestConflict")


def connect(bucket: str, *, timeout: float, attempts: int) -> Any:
    """A client for any number of threads. `timeout`: seconds that one connection or answer may take, in each attempt."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise WeightError(
            f"s3://{bucket} needs boto3, which is not installed: pip install 'opencomposer[s3]'"
        ) from error
    retries = {"total_max_attempts": attempts, "mode": "standard"}
    return boto3.client("s3", config=Config(connect_timeout=timeout, read_timeout=timeout, retries=retries))


@contextmanager
def named(place: str, verb: str) -> Iterator[None]:
    """Raises BlobMissing, BlobChanged or StoreUnavailable for what boto3 says of `place`."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _MISSING:
            raise BlobMissing(f"{place} does not exist") from error
        if code in _CHANGED:
            raise BlobChanged(f"{place} is not what it was") from error
        raise StoreUnavailable(
            f"weights at {place} could not be {verb}: {error}; check the bucket and its rights"
        ) from error
    except (BotoCoreError, Boto3Error) as error:
        raise StoreUnavailable(
            f"weights at {place} could not be {verb}: {error}; check the endpoint and the network"
        ) from error
