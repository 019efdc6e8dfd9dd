"""One contract for every place that weights can lie in: a folder, and a bucket on a real S3 endpoint."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainer.weights import CorruptPayload, StoreUnavailable, Subscriber, VersionMissing, WeightError, WeightStore
from trainer.weights.storage.bucket import BucketBlobs
from trainer.weights.storage.folder import FolderBlobs

pytestmark = pytest.mark.integration

Make = Callable[..., dict[str, torch.Tensor]]


@pytest.fixture(params=["folder", "bucket"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "store")
    return f"s3://{request.getfixturevalue('bucket')}/runs/7"


def follow(follower: Subscriber) -> dict[str, torch.Tensor]:
    fetched = follower.fetch()
    assert fetched is not None
    follower.commit(fetched)
    return fetched.mirror.state()


def test_publish_follow_join_pin_and_collect(where: str, state: Make) -> None:
    store = WeightStore(where, dtype="float32", anchor_every=3)
    follower = Subscriber(store.versions)
    assert follower.fetch() is None and store.latest() is None
    for version in range(7):
        store.publish(version, state(version))
        assert follower.behind() and torch.equal(follow(follower)["a"], state(version)["a"])
    store.pin("eval", 1)
    assert store.collect(keep=1) == [2, 3, 4, 5]
    assert store.versions.all() == [0, 1, 6]
    assert torch.equal(WeightStore(where, dtype="float32").load(1).state["b"], state(1)["b"])
    store.unpin("eval")
    assert store.collect(keep=1) == [0, 1]
    with pytest.raises(VersionMissing, match="version 1"):
        store.load(1)
    assert list(store.versions.blobs.keys("v")) and not list(store.versions.blobs.keys("pins/"))


def test_a_cleared_store_is_empty_and_takes_versions_again(where: str, state: Make) -> None:
    store = WeightStore(where, dtype="float32", anchor_every=3)
    assert store.versions.bytes() == 0
    for version in range(3):
        store.publish(version, state(version))
    blobs, pinned = store.versions.blobs, 1
    store.pin("eval", pinned)
    blobs.write("v000009/weights.safetensors", b"half")  # a publisher was killed
    assert store.versions.bytes() == sum(len(blobs.read(key)) for key in blobs.keys("v"))
    with store.versions.writing():
        assert list(store.versions.clear()) == [2, 1, 0]
    assert store.versions.all() == [] and store.versions.bytes() == 0 and store.versions.pinned() == set()
    again = WeightStore(where, dtype="float32")  # another process
    assert again.publish(5, state(5)).kind == "anchor" and again.versions.all() == [5]


def test_replaced_history_and_what_a_killed_publisher_left(where: str, state: Make) -> None:
    store = WeightStore(where, dtype="float32")
    for version in range(3):
        store.publish(version, state(version))
    blobs = store.versions.blobs
    blobs.write("v000003/weights.safetensors", b"half")  # killed before the manifest
    assert store.latest() == 2
    resumed = WeightStore(where, dtype="float32")
    assert resumed.publish(1, state(1)).version == 1 and store.latest() == 2
    assert resumed.publish(2, state(2, timeline=1)).kind == "anchor"
    assert not list(blobs.keys("v000003/"))
    assert torch.equal(store.load().state["a"], state(2, timeline=1)["a"])


def test_a_flipped_bit_is_refused_and_answered_by_an_anchor(where: str, state: Make) -> None:
    store = WeightStore(where, dtype="float32")
    store.publish(0, state(0))
    follower = Subscriber(store.versions)
    follow(follower)
    store.publish(1, state(1))
    blobs = store.versions.blobs
    data = bytearray(blobs.read("v000001/delta.safetensors"))
    data[-1] ^= 4
    blobs.write("v000001/delta.safetensors", bytes(data))
    with pytest.raises(CorruptPayload, match="version 1"):
        follower.fetch()
    assert store.versions.anchor_requested()
    assert store.publish(2, state(2)).kind == "anchor" and not store.versions.anchor_requested()
    assert torch.equal(follow(follower)["a"], state(2)["a"])


def test_one_writer_at_a_time(where: str, state: Make) -> None:
    store = WeightStore(where)
    with store.versions.writing():
        with pytest.raises(WeightError, match="another process"):
            WeightStore(where, wait=0).publish(0, state(0))
    assert store.publish(0, state(0)).version == 0


def test_a_rank_writes_while_another_process_takes_the_lock_and_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank may answer the plan of an attempt that failed just when rank 0 begins anew."""
    mine, leader, synced = FolderBlobs(tmp_path), FolderBlobs(tmp_path), os.fsync
    cleanings = iter(range(2))

    def meanwhile(descriptor: int) -> None:
        synced(descriptor)
        if next(cleanings, None) is not None:
            with leader.writing():
                pass

    monkeypatch.setattr(os, "fsync", meanwhile)
    mine.write("v000001/part-00001.json", b"whole")
    assert next(cleanings, None) is None and mine.read("v000001/part-00001.json") == b"whole"
    assert [path.name for path in (tmp_path / "v000001").iterdir()] == ["part-00001.json"]


def test_a_bucket_that_is_not_there_or_out_of_reach_is_named(
    bucket: str, state: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUnavailable, match=r"s3://nobody-made-it/.*NoSuchBucket"):
        WeightStore("s3://nobody-made-it").publish(0, state(0))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(StoreUnavailable, match="check the endpoint"):
        list(BucketBlobs(bucket, timeout=1.0).keys())


def _publish_into_little_room(root: str, state: dict[str, torch.Tensor], answers: multiprocessing.Queue) -> None:
    store = WeightStore(root, dtype="float32")
    store.publish(0, state)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    try:
        store.publish(1, {name: tensor + 1 for name, tensor in state.items()})
    except StoreUnavailable as error:
        answers.put(str(error))
    answers.put(store.versions.all())


def test_a_full_store_is_named_and_loses_nothing(tmp_path: Path, state: Make) -> None:
    """The room for files ends in a child process, as it does on a full disk: writes fail half way."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_publish_into_little_room, args=(str(tmp_path), state(0), answers))
    child.start()
    problem, versions = answers.get(timeout=60), answers.get(timeout=60)
    child.join(60)
    assert "could not be written" in problem and "free space" in problem and versions == [0]
    assert not list(tmp_path.glob("v*/.writing-*"))
    store = WeightStore(tmp_path, dtype="float32")
    assert torch.equal(store.load().state["a"], state(0)["a"])
    assert store.publish(1, state(1)).kind == "anchor"
