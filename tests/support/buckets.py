"""A real S3 endpoint on this machine, for tests of what is kept in buckets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def s3_endpoint() -> Iterator[str]:
    """The URL of a server that holds no bucket yet."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def new_bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket; the process's AWS variables lead to it."""
    settings = {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "us-east-1"}
    for name, value in (settings | {"ENDPOINT_URL": endpoint}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name
