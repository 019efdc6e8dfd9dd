"""The right to write to a bucket on a real S3 endpoint: taken over from the dead, kept by the slow, lost without harm."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
import torch
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.support.processes import forkserver
from trainer.errors import LeaseLost, StoreBusy
from trainer.weights import Versions, WeightError
from trainer.weights.publisher import Publisher
from trainer.weights.storage.bucket import BucketBlobs
from trainer.weights.storage.lease import LEASE_SECONDS, Note
from trainer.weights.versions import WAIT_SECONDS

pytestmark = pytest.mark.integration

Make = Callable[..., dict[str, torch.Tensor]]
Body = Iterable[bytes]
DEADLINE = 60.0


class Gate:
    """Another endpoint of the same buckets, which treats some requests as a bad network does."""

    def __init__(self) -> None:
        self.address = ""
        self.holds = ""
        """Part of the path of the writes that wait for `open`."""
        self.lost: set[int] = set()
        """Writes of the lock, counted from 1, that are done, and whose answers are lost."""
        self.deaf = False
        """Writes of the lock are not done."""
        self.latency = 0.0
        self.held, self.open = threading.Event(), threading.Event()
        self._locked = 0
        self._counted = threading.Condition()
        self._application = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Body:
        self.open.wait(self.latency)
        path, put = environ["PATH_INFO"], environ["REQUEST_METHOD"] == "PUT"
        if put and path.endswith("/.lock"):
            return self._lock(environ, start)
        if put and self.holds and self.holds in path:
            self.held.set()
            assert self.open.wait(DEADLINE)
        return self._application(environ, start)

    def _lock(self, environ: dict[str, Any], start: Callable[..., Any]) -> Body:
        if self.deaf:
            return _broken(start)
        answer = list(self._application(environ, start))
        with self._counted:
            self._locked += 1
            self._counted.notify_all()
            return _broken(start) if self._locked in self.lost else answer

    def wait_for_locks(self, times: int) -> None:
        """Until the lock was written so often."""
        with self._counted:
            assert self._counted.wait_for(lambda: self._locked >= times, DEADLINE)


def _broken(start: Callable[..., Any]) -> Body:
    start("500 Internal Server Error", [("Content-Length", "0")])
    return []


@pytest.fixture
def gate(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """What is made after it speaks through it."""
    gate = Gate()
    server = make_server("127.0.0.1", 0, gate, threaded=True)
    gate.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield gate
    gate.open.set()
    server.shutdown()
    thread.join(DEADLINE)
    server.server_close()


def publisher(bucket: str, *, lease: float = LEASE_SECONDS, wait: float = WAIT_SECONDS) -> Publisher:
    return Publisher(Versions(BucketBlobs(bucket, "runs/7", lease=lease), wait=wait), dtype="float32")


def note(bucket: str) -> Note:
    lock = boto3.client("s3").get_object(Bucket=bucket, Key="runs/7/.lock")
    return Note.model_validate_json(lock["Body"].read())


def _publish(bucket: str, lease: float, state: dict[str, torch.Tensor], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    publisher(bucket, lease=lease).publish(0, state)


def test_a_killed_publisher_is_waited_for_and_no_longer(
    bucket: str, gate: Gate, state: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.holds = "/v000000/weights"
    with monkeypatch.context() as there:
        there.setenv("AWS_ENDPOINT_URL", gate.address)
        killed = forkserver().Process(target=_publish, args=(bucket, 6.0, state(0), dict(os.environ)))
        killed.start()
        assert gate.held.wait(DEADLINE)
    killed.kill()
    killed.join(DEADLINE)
    with pytest.raises(StoreBusy, match=rf"process {killed.pid}\).*forgotten after 6 s"):
        publisher(bucket, wait=0).publish(0, state(0))
    successor = publisher(bucket, wait=DEADLINE)
    assert successor.publish(0, state(0)).kind == "anchor" and successor.store.all() == [0]
    assert note(bucket).free and note(bucket).seconds == LEASE_SECONDS < WAIT_SECONDS


def test_a_publish_that_takes_longer_than_its_lease_keeps_it(
    bucket: str, gate: Gate, state: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = publisher(bucket, wait=0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.address)
    slow = publisher(bucket, lease=4.5)
    gate.holds = "/v000000/weights"
    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(slow.publish, 0, state(0))
        assert gate.held.wait(DEADLINE)
        gate.wait_for_locks(6)  # five renewals: more than the lease and what dates may be wrong by
        with pytest.raises(StoreBusy):
            rival.publish(0, state(1))
        gate.open.set()
        assert published.result(DEADLINE).kind == "anchor"
    assert rival.store.all() == [0]
    assert rival.publish(1, state(1)).version == 1  # given back


def test_a_lease_that_ran_out_publishes_nothing_and_leaves_its_successor_alone(
    bucket: str, gate: Gate, state: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    successor = publisher(bucket, wait=DEADLINE)
    successor.publish(4, state(4))  # connected, past the gate
    with monkeypatch.context() as there:
        there.setenv("AWS_ENDPOINT_URL", gate.address)
        cut_off = publisher(bucket, lease=4.0)
        cut_off.publish(4, state(4))
        gate.holds = "/v000005/"
        with ThreadPoolExecutor(1) as pool:
            published = pool.submit(cut_off.publish, 5, state(5))
            assert gate.held.wait(DEADLINE)
            gate.deaf = True
            with successor.store.writing():
                successor.store.sweep()
                mine = note(bucket)
                gate.deaf = False
                gate.open.set()
                with pytest.raises(LeaseLost, match=r"runs/7/\.lock was lost.*then resume"):
                    published.result(DEADLINE)
                assert note(bucket) == mine and successor.store.all() == [4]
    assert successor.publish(5, state(5)).version == 5
    assert cut_off.publish(6, state(6)).kind == "anchor"  # knows nothing of what was published meanwhile


def test_a_loss_that_only_the_store_knows_of_is_noticed_before_the_manifest(
    bucket: str, gate: Gate, state: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a sleep that this machine's clock did not count."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.address)
    asleep = publisher(bucket)
    gate.holds = "/v000000/weights"
    other = Note(owner=uuid.uuid4().hex, holder="elsewhere")
    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(asleep.publish, 0, state(0))
        assert gate.held.wait(DEADLINE)
        boto3.client("s3").put_object(Bucket=bucket, Key="runs/7/.lock", Body=other.model_dump_json())
        gate.open.set()
        with pytest.raises(LeaseLost):
            published.result(DEADLINE)
    assert note(bucket) == other and asleep.store.all() == []


def test_a_lost_lease_collects_nothing(bucket: str, gate: Gate, state: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.address)
    asleep = publisher(bucket, lease=3.0)
    asleep.publish(0, state(0))
    with asleep.store.writing():
        gate.deaf = True
        blobs = asleep.store.blobs
        assert isinstance(blobs, BucketBlobs)
        with pytest.raises(LeaseLost):
            blobs.still_writing()
        with pytest.raises(LeaseLost):
            asleep.store.remove(0)
        with pytest.raises(LeaseLost):
            blobs.write("v000001/weights.safetensors", bytes(20 << 20))  # in parts
        gate.deaf = False
    assert asleep.store.all() == [0] and not boto3.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads")


def test_a_slow_endpoint_and_lost_answers_do_not_cost_the_lease(
    bucket: str, gate: Gate, state: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.latency = 0.3
    gate.lost = {1, 3, 4}  # of taking it; of a renewal, twice
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.address)
    slow = publisher(bucket, lease=6.0, wait=0)
    for version in range(2):  # each takes the lease, proves it and gives it back
        assert slow.publish(version, state(version)).version == version
        assert note(bucket).free
    assert slow.store.all() == [0, 1]


def test_a_lock_of_something_else_is_named(bucket: str, state: Make) -> None:
    boto3.client("s3").put_object(Bucket=bucket, Key="runs/7/.lock", Body=b"locked")
    with pytest.raises(WeightError, match=r"runs/7/\.lock is not of this version of OpenComposer.*remove it"):
        publisher(bucket, wait=0).publish(0, state(0))
