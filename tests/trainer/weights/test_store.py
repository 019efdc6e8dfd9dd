"""Publishing, joining and following: anchors and deltas, repeats, replaced history, garbage collection."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from trainer.weights import Subscriber, VersionMissing, WeightError, WeightStore


def folder(store: WeightStore, version: int) -> Path:
    return Path(store.root) / f"v{version:06d}"


Make = Callable[..., dict[str, torch.Tensor]]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def test_anchor_first_then_deltas_then_anchor_again(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path, dtype="float32", anchor_every=4)
    kinds = [store.publish(v, state(v)).kind for v in range(9)]
    assert kinds == ["anchor", "delta", "delta", "delta", "anchor", "delta", "delta", "delta", "anchor"]
    for version in range(9):
        loaded = store.load(version)
        assert loaded.version == version and same(loaded.state, state(version))
    delta = store.manifest(3)
    assert (delta.base_version, delta.base_digest) == (2, store.manifest(2).digest)
    assert delta.tensors["frozen"].pieces[0].encoding == "same" and 0 < delta.density < 0.01
    assert delta.payload_bytes < store.manifest(0).payload_bytes


def test_the_default_dtype_is_bfloat16_and_an_anchor_is_an_ordinary_checkpoint(tmp_path: Path, state: Make) -> None:
    WeightStore(tmp_path).publish(0, state(0))
    plain = safetensors.torch.load_file(tmp_path / "v000000" / "weights.safetensors")
    assert plain["a"].dtype == torch.bfloat16 and torch.equal(plain["a"], state(0)["a"].bfloat16())


def test_the_mirror_is_a_copy_of_what_was_published(tmp_path: Path, state: Make) -> None:
    store, live = WeightStore(tmp_path, dtype="float32"), state(0)
    store.publish(0, live)
    live["a"].add_(1)  # the optimiser works in place
    store.publish(1, live)
    assert torch.equal(store.load(0).state["a"], state(0)["a"])
    assert torch.equal(store.load(1).state["a"], state(0)["a"] + 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_frozen_stays_as_it_was_while_training_goes_on(tmp_path: Path, state: Make, dtype: str) -> None:
    """Also where parameters have the published dtype already, so that nothing needs to be converted."""
    store = WeightStore(tmp_path, dtype=dtype)
    live = {name: tensor.to(getattr(torch, dtype)) for name, tensor in state(0).items()}
    before = {name: tensor.clone() for name, tensor in live.items()}
    frozen = store.freeze(live)
    for tensor in live.values():
        tensor.add_(1)
    store.write(0, frozen)
    assert same(store.load(0).state, before)


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    store = WeightStore(tmp_path / "none")
    assert store.latest() is None and Subscriber(store.versions).fetch() is None
    with pytest.raises(VersionMissing, match="empty"):
        store.load()
    with pytest.raises(VersionMissing, match="version 3"):
        store.load(3)


def test_a_new_process_starts_with_an_anchor_and_a_gap_makes_one(tmp_path: Path, state: Make) -> None:
    WeightStore(tmp_path).publish(0, state(0))
    resumed = WeightStore(tmp_path)
    assert resumed.publish(1, state(1)).kind == "anchor"
    assert resumed.publish(2, state(2)).kind == "delta"
    assert resumed.publish(4, state(4)).kind == "anchor"
    assert resumed.publish(5, state(5), anchor=True).kind == "anchor"


def test_publishing_the_same_bytes_again_changes_nothing(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path)
    before = [store.publish(v, state(v)) for v in range(4)]
    resumed = WeightStore(tmp_path)
    times = {v: os.stat(folder(store, v)).st_mtime_ns for v in range(4)}
    assert resumed.publish(2, state(2)) == before[2]
    assert resumed.publish(3, state(3)) == before[3]
    assert {v: os.stat(folder(store, v)).st_mtime_ns for v in range(4)} == times
    assert resumed.publish(4, state(4)).kind == "delta"  # history was confirmed, so the chain goes on
    assert same(store.load(4).state, {n: t.bfloat16() for n, t in state(4).items()})


def test_other_bytes_replace_history_and_subscribers_notice(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path, dtype="float32")
    for version in range(6):
        store.publish(version, state(version))
    follower = Subscriber(store.versions)
    first = follower.fetch()
    assert first is not None
    follower.commit(first)
    assert not follower.behind() and follower.fetch() is None

    resumed = WeightStore(tmp_path, dtype="float32")
    old = store.manifest(4)
    new = resumed.publish(4, state(4, timeline=1))
    assert new.kind == "anchor" and new.incarnation != old.incarnation
    assert store.latest() == 4  # version 5 stood on the replaced one and is retracted
    assert follower.behind()
    second = follower.fetch()
    assert second is not None and second.kind == "anchor"
    follower.commit(second)
    assert second.mirror.version == 4 and same(second.mirror.state(), state(4, timeline=1))

    resumed.publish(5, state(5, timeline=1))
    third = follower.fetch()
    assert third is not None and third.kind == "delta" and same(third.mirror.state(), state(5, timeline=1))


def test_a_follower_moves_by_deltas_and_a_late_joiner_by_anchor_and_chain(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path, dtype="float32", anchor_every=100)
    store.publish(0, state(0))
    follower = Subscriber(store.versions)
    for version in range(1, 5):
        fetched = follower.fetch()
        assert fetched is not None
        follower.commit(fetched)
        store.publish(version, state(version))
    fetched = follower.fetch()
    assert fetched is not None and fetched.kind == "delta"
    assert fetched.bytes == store.manifest(4).payload_bytes
    late = Subscriber(store.versions).fetch()
    assert late is not None and late.kind == "anchor"
    assert late.bytes == sum(store.manifest(v).payload_bytes for v in range(5))
    assert same(late.mirror.state(), fetched.mirror.state())


def test_tensors_that_change_shape_make_an_anchor(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path)
    store.publish(0, state(0))
    assert store.publish(1, state(1) | {"b": torch.zeros(18)}).kind == "anchor"
    assert store.publish(2, state(2)).kind == "anchor"


def test_only_one_process_publishes(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path)
    with store.versions.writing(), pytest.raises(WeightError, match="another process"):
        WeightStore(tmp_path, wait=0).publish(0, state(0))


def test_collection_keeps_every_chain_that_is_needed(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path, dtype="float32", anchor_every=5)
    for version in range(14):
        store.publish(version, state(version))
    store.pin("eval", 7)
    assert store.collect(keep=2) == [0, 1, 2, 3, 4, 8, 9]
    assert store.versions.all() == [5, 6, 7, 10, 11, 12, 13]
    for version in (7, 12, 13):
        assert same(store.load(version).state, state(version))
    store.unpin("eval")
    assert store.collect(keep=2) == [5, 6, 7]
    assert same(store.load().state, state(13))


def test_collection_under_a_follower_falls_back_to_what_is_left(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path, dtype="float32", anchor_every=3)
    store.publish(0, state(0))
    follower = Subscriber(store.versions)
    fetched = follower.fetch()
    assert fetched is not None
    follower.commit(fetched)
    for version in range(1, 9):
        store.publish(version, state(version))
    store.collect(keep=1)
    moved = follower.fetch()
    assert moved is not None and moved.kind == "anchor" and same(moved.mirror.state(), state(8))


def _publish_forever(root: str, ready: str) -> None:
    store = WeightStore(Path(root), dtype="float32", anchor_every=3)
    version = (store.latest() or 0) + 1
    while True:
        store.publish(version, {"w": torch.full((400, 400), float(version))})
        Path(ready).touch()
        version += 1


def test_a_publisher_killed_at_any_moment_leaves_only_whole_versions(tmp_path: Path) -> None:
    root, ready = tmp_path / "store", tmp_path / "ready"
    for attempt in range(3):
        ready.unlink(missing_ok=True)
        process = multiprocessing.get_context("fork").Process(target=_publish_forever, args=(str(root), str(ready)))
        process.start()
        deadline = time.monotonic() + 30
        while not ready.exists() and time.monotonic() < deadline:
            process.join(0.002 * (attempt + 1))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(10)
        store = WeightStore(root, dtype="float32")
        for version in store.versions.all():
            assert store.load(version).state["w"].unique().tolist() == [float(version)]
    latest = store.latest()
    assert latest is not None
    store.publish(latest + 1, {"w": torch.zeros(1)})
    assert not list(root.glob(".staging-*"))


def test_a_directory_without_manifest_is_not_a_version(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path)
    store.publish(0, state(0))
    (tmp_path / "v000001").mkdir()
    (tmp_path / "v000001" / "weights.safetensors").write_bytes(b"half")
    assert store.latest() == 0
    store.publish(1, state(1))
    assert store.load(1).version == 1
    assert json.loads((tmp_path / "v000001" / "manifest.json").read_text())["version"] == 1


def test_an_untied_head_travels_in_deltas(tmp_path: Path) -> None:
    """Names are frozen with the head last (it may be tied) and listed in the manifest in order of name."""
    generator = torch.Generator().manual_seed(0)
    state = {
        name: torch.randn(33, 7, generator=generator)
        for name in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")
    }
    store = WeightStore(tmp_path, dtype="float32")
    store.publish(0, state)
    for tensor in state.values():
        tensor.view(-1)[:5] += 1.0
    assert store.publish(1, state).kind == "delta"
    loaded = store.load(1).state
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
