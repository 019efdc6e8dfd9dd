"""Clusters behind networks of their own: each follows at its own pace and proves what it serves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trainer.inference.models import make, save
from trainer.inference.contract import DeploymentSpec, SyncTimings
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.deployments import Deployment, Deployments
from trainer.inference.embedded.serving.thread import EngineThread
from trainer.weights import Subscriber, Versions, WeightStore
from trainer.weights.patch import Patch, between
from trainer.weights.storage.folder import FolderBlobs

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


REGIONS = {"near": (0.0, 1e9), "across": (0.02, 400_000), "far": (0.06, 100_000)}
"""Seconds of a round trip, bytes a second."""
GOAL = 10


class Clusters(Deployments):
    """The engine's own deployments, each of which sees the store through the network of its region."""

    def __init__(self, engine: EngineThread, root: Path, memory: Path) -> None:
        super().__init__(engine, Limits(max_context=64, max_num_seqs=4), memory)
        self.root = root
        self.seen: dict[str, list[SyncTimings]] = {name: [] for name in REGIONS}

    def _register(self, spec: DeploymentSpec) -> Deployment:
        deployment = super()._register(spec)
        latency, speed = REGIONS[spec.name]
        region = Region(self.root, latency=latency, bytes_per_second=speed)
        deployment.subscriber = Subscriber(Versions(region))
        return deployment

    async def _apply(self, deployment: Deployment, work: Callable[[], None], timings: SyncTimings) -> None:
        await super()._apply(deployment, work, timings)
        self.seen[deployment.spec.name].append(timings)

    async def keep_up(self, name: str) -> None:
        deployment = self.get(name)
        while True:
            if await asyncio.to_thread(deployment.subscriber.behind):
                await self.update(name, None)
            await asyncio.sleep(0.005)


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        await asyncio.sleep(0.005)


@pytest.mark.timeout(240)
async def test_clusters_of_several_regions_follow_at_their_own_pace(tmp_path: Path) -> None:
    """Real engines behind simulated networks: all serve the same digest in the end, none waits for another."""
    policy = make("qwen3")
    folder = save(policy, tmp_path / "policy")
    store = WeightStore(tmp_path / "store", dtype="float32", anchor_every=100)
    state = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    store.publish(0, state)
    engine = EngineThread()
    engine.start()
    clusters = Clusters(engine, tmp_path / "store", tmp_path / "memory.json")
    for name in REGIONS:
        spec = DeploymentSpec(name=name, policy_dir=str(folder), store=str(store.root), follow=True)
        await clusters.create(spec)
    following = [asyncio.create_task(clusters.keep_up(name)) for name in REGIONS]
    try:
        for version in range(1, GOAL + 1):
            state["model.norm.weight"][version] += 1.0
            store.publish(version, state)
            near = clusters.seen["near"]
            await until(lambda near=near, version=version: near[-1].version == version, f"near serves {version}")
        for name in REGIONS:
            await until(lambda name=name: clusters.seen[name][-1].version == GOAL, f"{name} serves {GOAL}")
    finally:
        for task in following:
            task.cancel()
        await asyncio.to_thread(engine.stop)
    digest = store.manifest(GOAL).digest
    statuses = {name: clusters.all[name].status() for name in REGIONS}
    assert {status.digest for status in statuses.values()} == {digest}
    assert [timings.version for timings in clusters.seen["near"]] == list(range(GOAL + 1))
    # The others took several versions at once, by their chain.
    assert len(clusters.seen["far"]) <= len(clusters.seen["across"]) <= len(clusters.seen["near"])
    assert len(clusters.seen["far"]) < GOAL
    for name, (latency, speed) in REGIONS.items():
        for timings in clusters.seen[name]:
            assert timings.fetch >= latency + timings.bytes / speed * 0.99 and timings.decode > 0
            assert timings.wait >= 0 and 0 < timings.apply <= timings.pause  # generation stood still for the swap alone
            assert timings.pause < timings.fetch + timings.decode
        assert statuses[name].last_sync == clusters.seen[name][-1]  # what the status and the system page show


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
