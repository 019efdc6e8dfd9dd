"""A worker killed at any moment: what it left is swept, and what it had saved is whole."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.backends.base import Backend
from sandbox.backends.snapshots import SnapshotStore

from ..host_state import mounts
from .test_leftovers import descendants, groups, living, wait_until

ROOT = Path(__file__).resolve().parents[4]
WORKER = """
import asyncio, importlib, random, sys
from pathlib import Path
from sandbox.backends.base import EnvSpec, Limits
from tests.support.fork_backend import fork
from sandbox.backends.snapshots import SnapshotStore

module, name, layer, folder, seed = sys.argv[1:]
backend, store = getattr(importlib.import_module(module), name)(), SnapshotStore(Path(folder))
env, limits, chance = EnvSpec((Path(layer),)), Limits(memory_bytes=64 << 20, disk_bytes=32 << 20), random.Random(seed)

def step(what):
    print(what, flush=True)

async def episode(number):
    step("start")
    async with await backend.start(env, limits=limits) as box:
        await box.exec(f"setsid sleep 970 & head -c {chance.randrange(1 << 21)} /dev/urandom >file{number}; N={number}")
        step("ran")
        with await store.save(box) as lease:
            step("saved")
            boxes = await fork(backend, env, lease.snapshot, 3, limits=limits)
            step("forked")
            await asyncio.gather(*(other.exec("echo more >>more") for other in boxes))
            await asyncio.gather(*(other.close() for other in boxes))
    step("closed")
    store.collect(store.digests(), min_age_seconds=chance.choice([0, 100]))

async def main():
    for number in range(1000):
        await asyncio.gather(episode(2 * number), episode(2 * number + 1))

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(4))
async def test_kill_9_at_random_moments(backend: Backend, layer: Path, tmp_path: Path, seed: int) -> None:
    kind = type(backend)
    before = mounts()
    chance = random.Random(seed)
    arguments = [kind.__module__, kind.__name__, str(layer), str(tmp_path / "store"), str(seed)]
    worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    for _ in range(chance.randrange(1, 24)):
        assert await asyncio.to_thread(worker.stdout.readline), "the worker ended by itself"
    for _ in range(chance.randrange(3)):  # somewhere between two steps
        os.sched_yield()
    worker.send_signal(signal.SIGSTOP)  # so that its family does not change while it is looked at
    family = descendants(worker.pid)
    for pid in family if seed % 2 else {worker.pid}:  # everything at once, or the host alone
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    await asyncio.to_thread(wait_until, lambda: not living(family), 60)

    survivor = getattr(importlib.import_module(kind.__module__), kind.__name__)()
    end = time.monotonic() + 60  # what the launcher had begun after we looked may still be ending
    while (await survivor.sweep(), leftover := [group for pid in family for group in groups(pid)])[1]:
        assert time.monotonic() < end, f"still there after the deadline: {leftover}"
    assert mounts() == before

    store = SnapshotStore(tmp_path / "store")
    store.collect(store.digests(), min_age_seconds=0)
    assert not list((tmp_path / "store/drafts").iterdir())
    for digest in store.digests():
        with store.get(digest) as lease:  # unpacked anew, so the digest is proved
            assert (lease.snapshot.layer / "repo").is_dir() and b"N=" in lease.snapshot.shell_state
    store.collect(set(), min_age_seconds=0)
    for folder in ("archives", "leases", "drafts"):
        assert not list((tmp_path / "store" / folder).iterdir())
    await survivor.close()
