"""Bytes that do not prove themselves are refused with a type, and another way is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from trainer.weights import (
    CorruptManifest,
    CorruptPayload,
    Subscriber,
    WeightRefused,
    WeightStore,
    WrongBase,
    payload,
)


def folder(store: WeightStore, version: int) -> Path:
    return Path(store.root) / f"v{version:06d}"


Make = Callable[..., dict[str, torch.Tensor]]


@pytest.fixture
def store(tmp_path: Path, state: Make) -> WeightStore:
    store = WeightStore(tmp_path, dtype="float32", anchor_every=3)
    for version in range(6):  # anchors 0 and 3
        store.publish(version, state(version))
    return store


def at(store: WeightStore, version: int) -> Subscriber:
    subscriber = Subscriber(store.versions)
    fetched = subscriber.fetch(version)
    assert fetched is not None
    subscriber.commit(fetched)
    return subscriber


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[len(data) - 3] ^= 0x10
    elif how == "truncate":
        del data[-20:]
    elif how == "empty":
        data.clear()
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["flip", "truncate", "empty"])
@pytest.mark.parametrize("version", [3, 5])
def test_damaged_payloads_are_refused_and_an_anchor_is_asked_for(
    store: WeightStore, state: Make, how: str, version: int
) -> None:
    follower = at(store, 2)
    manifest = store.manifest(version)
    damage(folder(store, version) / manifest.payload_name, how)
    with pytest.raises(CorruptPayload, match=f"version {version}"):
        follower.fetch(version)
    assert follower.current is not None and follower.current.version == 2  # what is served stays whole
    assert store.versions.anchor_requested()
    assert store.publish(6, state(6)).kind == "anchor"
    assert not store.versions.anchor_requested()
    fetched = follower.fetch()
    assert fetched is not None and torch.equal(fetched.mirror.state()["a"], state(6)["a"])


def test_reordered_tensors_are_refused(store: WeightStore) -> None:
    """Same names, same sizes, contents exchanged, and the payload digest forged to match."""
    manifest = store.manifest(3)
    path = folder(store, 3)
    tensors = safetensors.torch.load_file(path / manifest.payload_name)
    tensors["a"] = tensors["a"].flip(0).contiguous()
    forged = safetensors.torch.save(tensors)
    import hashlib

    changed = json.loads((path / "manifest.json").read_text())
    changed["shards"][0] |= {"digest": hashlib.sha256(forged).hexdigest(), "bytes": len(forged)}
    (path / "manifest.json").write_text(json.dumps(changed))
    (path / manifest.payload_name).write_bytes(forged)
    with pytest.raises(CorruptPayload, match="tensor a of version 3"):
        store.load(3)


def test_versions_in_the_wrong_place_are_refused(store: WeightStore, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "v000004")
    shutil.copytree(tmp_path / "v000005", tmp_path / "v000004")
    with pytest.raises(CorruptManifest, match="says version 5"):
        store.load(4)


def test_a_delta_on_other_weights_is_refused(store: WeightStore) -> None:
    manifest = store.manifest(5)
    wrong = at(store, 3).current
    assert wrong is not None
    with pytest.raises(WrongBase):
        payload.read(manifest, store.versions.payloads(manifest), wrong.raw, wrong.digest)
    with pytest.raises(WrongBase):
        payload.read(manifest, store.versions.payloads(manifest), None, None)


def test_a_broken_link_is_answered_by_the_nearest_anchor_and_chain(store: WeightStore, state: Make) -> None:
    """The follower's own next delta is unreadable, but an anchor past it leads to the newest version."""
    follower = at(store, 1)
    damage(folder(store, 2) / "delta.safetensors", "flip")
    fetched = follower.fetch()
    assert fetched is not None and fetched.kind == "anchor"
    assert torch.equal(fetched.mirror.state()["a"], state(5)["a"])


def test_a_mirror_that_no_longer_matches_is_answered_by_anchor_and_chain(store: WeightStore, state: Make) -> None:
    follower = at(store, 4)
    assert follower.current is not None
    broken = dict(follower.current.raw)
    data = broken["a"].data.copy()
    data[0] ^= 1  # a bit flips in memory
    broken["a"] = type(broken["a"])(broken["a"].dtype, broken["a"].shape, data)
    follower.current = type(follower.current)(follower.current.manifest, broken)
    fetched = follower.fetch()
    assert fetched is not None and fetched.kind == "anchor"
    assert [type(r) for r in fetched.refusals] == [CorruptPayload]
    assert torch.equal(fetched.mirror.state()["a"], state(5)["a"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("digest", "0" * 64),
        ("base_version", 9),
        ("format", 1),
        ("kind", "anchor"),
        ("unknown", 1),
        ("version", -1),
    ],
)
def test_manifests_that_contradict_themselves_are_refused(store: WeightStore, field: str, value: object) -> None:
    path = folder(store, 5) / "manifest.json"
    changed = json.loads(path.read_text())
    changed[field] = value
    path.write_text(json.dumps(changed))
    with pytest.raises(CorruptManifest, match="v000005"):
        store.load(5)


def test_every_flipped_byte_of_a_manifest_is_refused_or_changes_nothing(store: WeightStore, state: Make) -> None:
    path = folder(store, 5) / "manifest.json"
    good = path.read_bytes()
    for index in range(0, len(good), 7):
        path.write_bytes(good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :])
        try:
            loaded = store.load(5)
        except WeightRefused:
            continue
        except Exception as error:  # noqa: BLE001 - the point of the test is that nothing else is raised
            pytest.fail(f"byte {index}: {error!r}")
        assert torch.equal(loaded.state["a"], state(5)["a"])


def test_a_damaged_version_is_not_taken_for_published(store: WeightStore, state: Make) -> None:
    damage(folder(store, 5) / "delta.safetensors", "flip")
    again = WeightStore(store.root, dtype="float32")
    assert again.publish(5, state(5)).kind == "anchor"
    assert torch.equal(store.load(5).state["a"], state(5)["a"])
