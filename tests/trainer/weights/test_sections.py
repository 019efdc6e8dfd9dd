"""Parts of a version are read from the shards that have them, proven, and are the words of the whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trainer.weights.test_sharded_publisher import WORLD, publish, ranks
from trainer.weights import CorruptPayload, RankPublisher, VersionMissing, WeightStore, WrongBase, open_versions
from trainer.weights.sections import Wanted, load_sections
from trainer.weights.versions import Versions

Make = Callable[[int], dict[str, torch.Tensor]]


class Counted(Versions):
    """Notes what is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(open_versions(root).blobs)
        self.read: list[tuple[int, int]] = []

    def payloads(self, manifest, shards=None):
        self.read += [(manifest.version, number) for number in shards]
        return super().payloads(manifest, shards)


def words(state: dict[str, torch.Tensor], name: str, start: int, stop: int) -> torch.Tensor:
    return state[name].reshape(-1)[start:stop]


@pytest.mark.parametrize("seed", range(4))
def test_any_rows_are_those_of_the_whole(tmp_path: Path, state: Make, seed: int) -> None:
    """Over an anchor, deltas, and a delta in which a rank that started again sends its part whole."""
    group = ranks(tmp_path)
    for version in range(3):
        publish(group, version, state(version))
    group[1] = RankPublisher(group[1].store, 1, WORLD, dtype="float32", timeout=30.0)
    publish(group, 3, state(3))
    draw = random.Random(seed)
    for version in range(4):
        whole = WeightStore(tmp_path).load(version).state
        targets = []
        for name, tensor in whole.items():
            rows = sorted(draw.sample(range(len(tensor) + 1), 2))
            if draw.random() < 0.8:
                shape = (rows[1] - rows[0], *tensor.shape[1:])
                targets.append((name, torch.zeros(shape, dtype=torch.float64), (rows[0], *[0] * (tensor.ndim - 1))))
        wanted = Wanted()
        for name, target, offset in targets:
            wanted.read_into(target, name, offset)
        found = load_sections(open_versions(tmp_path), version, wanted.words)
        for name, target, offset in targets:
            found.read_into(target, name, offset)
            assert torch.equal(target, whole[name][offset[0] : offset[0] + len(target)].double()), (version, name)


def test_only_shards_that_have_the_words_are_read(tmp_path: Path, state: Make) -> None:
    group = ranks(tmp_path)
    for version in range(3):
        publish(group, version, state(version))
    store = Counted(tmp_path)
    manifest = store.manifest(2)
    first, second, third = manifest.tensors["a"].pieces
    assert (first.shard, second.shard, third.shard) == (0, 1, 2)
    found = load_sections(store, 2, {"a": (second.start, second.stop)})
    assert store.read == [(0, 1), (1, 1), (2, 1)]
    assert found.bytes_read == sum(store.manifest(version).shards[1].bytes for version in range(3))
    target = torch.zeros(second.stop - second.start)
    found.read_into(target.view(-1, 30), "a", (second.start // 30, 0))
    assert torch.equal(target, words(state(2), "a", second.start, second.stop))
    assert found.raw["a"].words == second.stop - second.start, "no room for the rest"
    store.read.clear()
    load_sections(store, 0, {"a": (first.stop - 1, first.stop + 1)})
    assert store.read == [(0, 0), (0, 1)]


def test_what_is_read_is_proven_and_what_is_not_read_does_no_harm(tmp_path: Path, state: Make) -> None:
    group = ranks(tmp_path)
    for version in range(2):
        publish(group, version, state(version))
    versions = open_versions(tmp_path)
    pieces = versions.manifest(1).tensors["a"].pieces
    damaged = tmp_path / "v000001" / versions.manifest(1).shards[0].name
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    load_sections(versions, 1, {"a": (pieces[1].start, pieces[1].stop)})
    assert not versions.anchor_requested()
    with pytest.raises(CorruptPayload, match="version 1"):
        load_sections(versions, 1, {"a": (0, 1)})
    assert versions.anchor_requested()


def test_another_policy_and_a_missing_version_are_refused(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path, dtype="float32")
    store.publish(0, state(0))
    with pytest.raises(WrongBase, match="no tensor c of 1 words: it is of another policy"):
        store.sections(0, {"c": (0, 1)})
    with pytest.raises(WrongBase, match="no tensor b of 18 words"):
        store.sections(0, {"b": (0, 18)})
    with pytest.raises(VersionMissing):
        store.sections(7, {"b": (0, 1)})
    found = store.sections(0, {"a": (0, 1200)})
    with pytest.raises(ValueError, match="is read by rows"):
        found.read_into(torch.zeros(40, 15), "a", (0, 15))


def test_tied_tensors_are_found_by_either_name(tmp_path: Path, state: Make) -> None:
    tensors = state(0)
    tensors["lm_head.weight"] = tensors["a"]
    store = WeightStore(tmp_path, dtype="float32")
    store.publish(0, tensors)
    target = torch.zeros(2, 30)
    store.sections(0, {"lm_head.weight": (60, 120)}).read_into(target, "lm_head.weight", (2, 0))
    assert torch.equal(target, tensors["a"][2:4])
