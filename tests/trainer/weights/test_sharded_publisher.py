"""Several ranks publish one version through the store alone: all of it becomes visible, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from trainer.weights import (
    CorruptPayload,
    Manifest,
    RankPublisher,
    ShardMissing,
    Slice,
    Subscriber,
    WeightError,
    WeightStore,
    open_versions,
)

pytestmark = pytest.mark.integration

Make = Callable[..., dict[str, torch.Tensor]]
Owned = dict[str, torch.Tensor | Slice]
WORLD = 3


def cut(state: dict[str, torch.Tensor], rank: int) -> Owned:
    """`a` in rows over all ranks, as dim-0 sharding does; `b` on rank 1; `frozen` on rank 2."""
    a = state["a"]
    rows = [0, 14, 28, 40]  # 40 rows over 3 ranks, the last one shorter
    local = a[rows[rank] : rows[rank + 1]]
    owned: Owned = {"a": Slice(local, tuple(a.shape), rows[rank] * a.shape[1])}
    if rank:
        owned[["b", "frozen"][rank - 1]] = state[["b", "frozen"][rank - 1]]
    return owned


def ranks(root: Path, *, timeout: float = 30.0, **options: int) -> list[RankPublisher]:
    return [
        RankPublisher(open_versions(root), rank, WORLD, dtype="float32", timeout=timeout, **options)
        for rank in range(WORLD)
    ]


def publish(group: list[RankPublisher], version: int, state: dict[str, torch.Tensor]) -> list[Manifest]:
    with ThreadPoolExecutor(len(group)) as pool:
        jobs = [pool.submit(one.publish, version, cut(state, one.rank)) for one in group]
        return [job.result() for job in jobs]


def test_shards_make_one_version_and_deltas_follow(tmp_path: Path, state: Make) -> None:
    group = ranks(tmp_path, anchor_every=4)
    follower = Subscriber(open_versions(tmp_path))
    kinds = []
    for version in range(6):
        manifests = publish(group, version, state(version))
        assert len({manifest.digest for manifest in manifests}) == 1 and len(manifests[0].shards) == WORLD
        kinds.append(manifests[0].kind)
        fetched = follower.fetch()
        assert fetched is not None
        follower.commit(fetched)
        loaded = fetched.mirror.state()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in state(version).items())
    assert kinds == ["anchor", "delta", "delta", "delta", "anchor", "delta"]
    delta = open_versions(tmp_path).manifest(5)
    assert 0 < delta.density < 0.01 and delta.total_words == 40 * 30 + 17 + 5
    assert sorted(path.name for path in (tmp_path / "v000005").iterdir()) == [
        *(f"delta-0000{rank}-of-00003.safetensors" for rank in (1, 2, 3)),
        "manifest.json",
    ]


def test_a_rank_that_restarted_sends_its_part_whole_inside_the_delta(tmp_path: Path, state: Make) -> None:
    group = ranks(tmp_path)
    for version in range(2):
        publish(group, version, state(version))
    group[1] = ranks(tmp_path)[1]
    manifest = publish(group, 2, state(2))[0]
    assert manifest.kind == "delta"
    assert [piece.encoding for piece in manifest.tensors["a"].pieces][1] == "raw"
    loaded = WeightStore(tmp_path, dtype="float32").load(2).state
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state(2).items())


def test_a_version_without_one_rank_does_not_exist_and_the_next_is_an_anchor(tmp_path: Path, state: Make) -> None:
    group = ranks(tmp_path)
    publish(group, 0, state(0))
    short = [RankPublisher(open_versions(tmp_path), rank, WORLD, dtype="float32", timeout=3) for rank in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(one.publish, 1, cut(state(1), one.rank)) for one in short]
        with pytest.raises(ShardMissing, match="rank 2 published nothing of version 1"):
            jobs[0].result()
        with pytest.raises(ShardMissing):
            jobs[1].result()
    assert open_versions(tmp_path).all() == [0]
    assert publish(ranks(tmp_path), 1, state(1))[0].kind == "anchor"
    assert torch.equal(WeightStore(tmp_path).load(1).state["a"], state(1)["a"])


def test_parts_that_leave_a_hole_are_refused(tmp_path: Path) -> None:
    alone = RankPublisher(open_versions(tmp_path), 0, 1, dtype="float32")
    with pytest.raises(WeightError, match="end at word 6 of 12"):
        alone.publish(0, {"w": Slice(torch.zeros(6), (4, 3), 0)})
    with pytest.raises(ValueError, match="does not fit"):
        alone.publish(0, {"w": Slice(torch.zeros(9), (4, 3), 6)})
    assert open_versions(tmp_path).all() == []


def test_history_is_replaced_and_one_damaged_shard_refuses_the_version(tmp_path: Path, state: Make) -> None:
    group = ranks(tmp_path)
    for version in range(3):
        publish(group, version, state(version))
    assert publish(ranks(tmp_path), 1, state(1, timeline=1))[0].kind == "anchor"
    assert open_versions(tmp_path).all() == [0, 1]
    shard = tmp_path / "v000001" / "weights-00002-of-00003.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptPayload, match="weights-00002-of-00003"):
        WeightStore(tmp_path).load(1)
