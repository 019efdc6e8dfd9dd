"""Nothing of a sandbox stays: not after close, not after the backend's end, not after kill -9 of the host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from sandbox.backends.base import EnvSpec
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.backends.namespaces.kernel.cgroups import PARENT

from ..host_state import mounts

ROOT = Path(__file__).resolve().parents[4]

HOST = """
import asyncio, json, os, sys
from pathlib import Path
from sandbox.backends.base import EnvSpec
from sandbox.backends.namespaces.backend import NamespacesBackend

async def main():
    backend = NamespacesBackend()
    boxes = await asyncio.gather(*(backend.start(EnvSpec(layers=(Path(sys.argv[1]),))) for _ in range(3)))
    for box in boxes:
        await box.exec("setsid sleep 977 & sleep 978 & head -c 1M /dev/zero >file")
    print(json.dumps({"zygote": backend._zygote._process.pid}), flush=True)
    await asyncio.gather(*(box.exec("sleep 979") for box in boxes))

asyncio.run(main())
"""


def descendants(pid: int) -> set[int]:
    """`pid` and all processes below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = set(), [pid]
    while todo:
        found.add(now := todo.pop())
        todo += children.get(now, [])
    return found


def living(pids: set[int]) -> set[int]:
    """Those that still run (a zombie that nobody collects runs no more)."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.add(pid)
    return found


def sleeping(zygote: int) -> set[int]:
    """The processes below `zygote` that run `sleep`."""
    found = set()
    for pid in descendants(zygote):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                found.add(pid)
    return found


def groups(zygote: int) -> list[str]:
    """The control groups of that zygote. Groups of others may vanish while we look."""
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if folder.endswith(f"/{PARENT}{zygote}")]


def wait_until(condition: object, seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "still there after the deadline"
        os.sched_yield()


async def test_close_leaves_nothing(layer: Path) -> None:
    before = mounts()
    backend = NamespacesBackend()
    sandbox = await backend.start(EnvSpec(layers=(layer,)))
    assert backend._zygote is not None
    zygote = backend._zygote._process.pid
    await sandbox.exec("setsid sleep 976 & (sleep 975 &) ; head -c 1M /dev/zero >file")
    wait_until(lambda: len(sleeping(zygote)) == 2)  # a job that was just started may not be `sleep` yet
    held = sleeping(zygote)
    await sandbox.close()
    assert living(held) == set()
    everything = descendants(zygote)
    had_groups = bool(groups(zygote))
    assert had_groups == (backend.probe().cgroup != "none")
    await backend.close()
    assert living(everything) == set() and groups(zygote) == [] and mounts() == before


async def test_a_closed_backend_starts_anew(layer: Path) -> None:
    backend = NamespacesBackend()
    async with await backend.start(EnvSpec(layers=(layer,))) as first:
        assert (await first.exec("echo 1")).output == b"1\n"
    await backend.close()
    async with await backend.start(EnvSpec(layers=(layer,))) as second:
        assert (await second.exec("echo 2")).output == b"2\n"
    await backend.close()


async def test_backend_close_takes_running_sandboxes_along(layer: Path) -> None:
    backend = NamespacesBackend()
    sandboxes = [await backend.start(EnvSpec(layers=(layer,))) for _ in range(2)]
    assert backend._zygote is not None
    everything = descendants(backend._zygote._process.pid)
    await backend.close()
    assert living(everything) == set()
    for sandbox in sandboxes:
        await sandbox.close()


async def test_a_killed_zygote_is_replaced(layer: Path) -> None:
    backend = NamespacesBackend()
    sandbox = await backend.start(EnvSpec(layers=(layer,)))
    assert backend._zygote is not None
    everything = descendants(backend._zygote._process.pid)
    os.kill(backend._zygote._process.pid, signal.SIGKILL)
    wait_until(lambda: not living(everything))
    await sandbox.close()
    async with await backend.start(EnvSpec(layers=(layer,))) as again:
        assert (await again.exec("echo on")).output == b"on\n"
    await backend.close()


def test_kill_9_of_the_host(layer: Path) -> None:
    before = mounts()
    command = [sys.executable, "-c", textwrap.dedent(HOST), str(layer)]
    host = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
    assert host.stdout is not None
    zygote = json.loads(host.stdout.readline())["zygote"]
    everything = descendants(zygote)
    assert len(everything) >= 1 + 3 * 4
    host.kill()
    host.wait()
    wait_until(lambda: not living(everything))
    wait_until(lambda: not groups(zygote))
    assert mounts() == before
    host.stdout.close()


def test_kill_9_of_host_and_zygote_together(layer: Path) -> None:
    """Empty control groups are all that can stay; the next zygote removes them."""
    command = [sys.executable, "-c", textwrap.dedent(HOST), str(layer)]
    host = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
    assert host.stdout is not None
    zygote = json.loads(host.stdout.readline())["zygote"]
    everything = descendants(zygote)
    os.kill(zygote, signal.SIGKILL)
    host.kill()
    host.wait()
    wait_until(lambda: not living(everything))
    backend = NamespacesBackend()
    backend.probe()
    asyncio.run(backend.close())
    assert groups(zygote) == []
    host.stdout.close()


async def test_a_forked_process_gets_its_own_zygote(layer: Path) -> None:
    """As Celery does: the parent has used the backend, its forked worker uses it again."""
    backend = NamespacesBackend()
    backend.probe()
    source = textwrap.dedent("""
        import asyncio, os, sys
        from pathlib import Path
        from sandbox.backends.choice import default_backend
        from sandbox.backends.base import EnvSpec
        backend = default_backend()
        backend.probe()
        parent = backend._zygote._process.pid
        pid = os.fork()
        async def use():
            async with await backend.start(EnvSpec(layers=(Path(sys.argv[1]),))) as box:
                said = (await box.exec("echo used")).output
                return said == b"used\\n" and (pid or backend._zygote._process.pid != parent)
        worked = asyncio.run(use())
        if pid == 0:
            os._exit(0 if worked else 1)
        assert worked and os.waitpid(pid, 0)[1] == 0
        assert asyncio.run(use())
        print("both")
    """)
    command = [sys.executable, "-c", source, str(layer)]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("both\n", 0), done.stderr
    await backend.close()


@pytest.mark.parametrize("runs", [2])
def test_one_backend_in_several_event_loops(layer: Path, runs: int) -> None:
    backend = NamespacesBackend()

    async def use() -> bytes:
        async with await backend.start(EnvSpec(layers=(layer,))) as sandbox:
            return (await sandbox.exec("echo used")).output

    assert [asyncio.run(use()) for _ in range(runs)] == [b"used\n"] * runs
    asyncio.run(backend.close())
