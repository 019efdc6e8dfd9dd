"""Clusters behind networks of their own: each follows at its own pace and proves what it serves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch

from trainer.weights import Subscriber, Versions, WeightStore
from trainer.weights.folder import FolderBlobs
from trainer.weights.patch import Patch, between

Make = Callable[..., dict[str, torch.Tensor]]


class Region(FolderBlobs):
    """The store as seen from afar: every read takes a round trip and its bytes' time on a capped link."""

    def __init__(self, root: Path, *, latency: float, bytes_per_second: float) -> None:
        super().__init__(root)
        self.latency = latency
        self.bytes_per_second = bytes_per_second
        self.link = threading.Lock()

    def read(self, key: str) -> bytes:
        data = super().read(key)
        time.sleep(self.latency)  # the network that is simulated, no wait for a condition
        with self.link:
            time.sleep(len(data) / self.bytes_per_second)
        return data


@dataclass
class Cluster:
    """Follows a store until it serves `goal`, with live weights that are patched under its pause."""

    region: Region
    goal: int
    patches: list[Patch] = field(default_factory=list)
    fetched: list[tuple[int, int, float, float]] = field(default_factory=list)
    """Version, bytes, seconds of fetch and of decoding."""

    def follow(self) -> dict[str, torch.Tensor]:
        subscriber = Subscriber(Versions(self.region))
        live: dict[str, torch.Tensor] = {}
        deadline = time.monotonic() + 60
        while subscriber.current is None or subscriber.current.version < self.goal:
            assert time.monotonic() < deadline, f"at {subscriber.current and subscriber.current.version}"
            moved = subscriber.fetch()
            if moved is None:
                time.sleep(0.002)
                continue
            old = subscriber.current
            if old is None:
                live = moved.mirror.state()
            else:
                self.patches.append(between(old, moved.mirror))
                self.patches[-1].apply(live)
            self.fetched.append((moved.mirror.version, moved.bytes, moved.fetch_seconds, moved.decode_seconds))
            subscriber.commit(moved)
        return live


def test_near_and_far_clusters_follow_at_their_own_pace(tmp_path: Path, state: Make) -> None:
    store = WeightStore(tmp_path, dtype="float32", anchor_every=100)
    store.publish(0, state(0))
    near = Cluster(Region(tmp_path, latency=0.0, bytes_per_second=1e9), goal=12)
    far = Cluster(Region(tmp_path, latency=0.05, bytes_per_second=100_000), goal=12)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(cluster.follow) for cluster in (near, far)]
        for version in range(1, 13):
            before = len(near.fetched)
            store.publish(version, state(version))
            deadline = time.monotonic() + 30
            while len(near.fetched) == before and time.monotonic() < deadline:
                time.sleep(0.002)
        served = [job.result(timeout=60) for job in jobs]
    for live in served:
        assert all(torch.equal(live[name], tensor) for name, tensor in state(12).items())
    # The near one saw every version; the far one took several at once, by their chain, and nobody waited for it.
    assert [version for version, *_ in near.fetched] == list(range(13))
    assert len(far.fetched) < len(near.fetched)
    for _, size, fetch, decode in far.fetched:
        assert fetch >= 0.05 + size / 100_000 * 0.99 and decode > 0
    assert sum(size for _, size, *_ in far.fetched) == sum(size for _, size, *_ in near.fetched)


def test_a_patch_that_broke_off_is_written_again(tmp_path: Path, state: Make) -> None:
    """Absolute words: half a patch and then the whole of it, or twice the whole, give the same weights."""
    store = WeightStore(tmp_path, dtype="float32")
    for version in range(4):
        store.publish(version, state(version))
    follower = Subscriber(store.versions)
    first = follower.fetch(0)
    assert first is not None
    follower.commit(first)
    last = follower.fetch(3)  # three deltas in one patch
    assert last is not None and last.kind == "delta"
    patch = between(first.mirror, last.mirror)
    assert 0 < patch.changed <= 6 and "frozen" not in patch.words
    live = first.mirror.state()
    Patch(3, {"a": patch.words["a"]}).apply(live)  # the engine died here
    for _ in range(2):
        patch.to("cpu").apply(live)
        assert all(torch.equal(live[name], tensor) for name, tensor in state(3).items())
