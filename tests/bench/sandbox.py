"""`make bench NAME=sandbox`: how fast sandboxes start and answer, how many a second, and what they leave behind.

Prints one JSON object as its last line. `start_ms_p50` is from the request to the end of the first command;
`file_call_ms_p50` is the slowest of the medians of read, write and list. Peers on the same machine at the same
moment: a plain bash, and `unshare` with the same namespaces around one. On a busy machine `--realtime` gives what
idle cores would give; the answer says so.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandbox.backends.base import EnvSpec, Sandbox
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.backends.namespaces.cgroups import PARENT
from tests.bench import report

GOALS: dict[str, report.Goal] = {
    "start_ms_p50": ("<=", 25.0),
    "file_call_ms_p50": ("<=", 1.0),
    "shell_call_ms_p50": ("<=", 8.0),
    "leftovers": ("==", 0.0),
}
CONCURRENT = 8


def write_environment(folder: Path, files: int = 200) -> EnvSpec:
    for number in range(files):
        path = folder / "repo" / f"package{number % 10}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"VALUE = {number}\n" + "def function(argument):\n    return argument\n" * 40)
    return EnvSpec(layers=(folder,))


async def timed(count: int, action: Callable[[], Awaitable[object]]) -> float:
    """Median milliseconds of `count` runs."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await action()
        taken.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(taken), 3)


async def starts(backend: NamespacesBackend, env: EnvSpec, count: int) -> dict[str, float]:
    ready, first, closed = [], [], []
    for _ in range(count):
        began = time.perf_counter()
        sandbox = await backend.start(env)
        ready.append(time.perf_counter() - began)
        await sandbox.exec("echo hi")
        first.append(time.perf_counter() - began)
        began = time.perf_counter()
        await sandbox.close()
        closed.append(time.perf_counter() - began)
    ordered = sorted(first)
    return {
        "start_ms_p50": round(statistics.median(first) * 1e3, 3),
        "start_ms_p95": round(ordered[int(len(ordered) * 0.95)] * 1e3, 3),
        "start_ms_min": round(ordered[0] * 1e3, 3),
        "ready_ms_p50": round(statistics.median(ready) * 1e3, 3),
        "close_ms_p50": round(statistics.median(closed) * 1e3, 3),
    }


async def calls(sandbox: Sandbox, count: int) -> dict[str, float]:
    content = b"x" * 4096
    path = "package1/module1.py"
    files = {
        "read_ms_p50": await timed(count * 4, lambda: sandbox.read(path)),
        "write_ms_p50": await timed(count * 4, lambda: sandbox.write("written.py", content)),
        "list_ms_p50": await timed(count * 4, lambda: sandbox.list("package1")),
    }
    return {
        "file_call_ms_p50": max(files.values()),
        **files,
        "search_ms_p50": await timed(count, lambda: sandbox.search("VALUE = 7", ".", glob=None, max_matches=50)),
        "shell_call_ms_p50": await timed(count, lambda: sandbox.exec("true")),
        "shell_stateless_ms_p50": await timed(count, lambda: sandbox.exec("true", keep_state=False)),
        "diff_ms_p50": await timed(count, sandbox.diff),
    }


async def creates(backend: NamespacesBackend, env: EnvSpec, count: int) -> float:
    """Sandboxes a second through start, one command and close, `CONCURRENT` at once."""
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            async with await backend.start(env) as sandbox:
                await sandbox.exec("echo hi")

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONCURRENT)))
    return round(count / (time.perf_counter() - began), 1)


def peer_ms(command: list[str], count: int) -> float | None:
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode != 0:
        return None
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(command, capture_output=True)
        taken.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(taken), 3)


def leftovers(zygote: int, mounts_before: str) -> int:
    """Processes, control groups and mounts that outlived the backend."""
    processes = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            processes += fields[3] == str(zygote) and fields[0] not in "ZX"  # its session
    groups = len(list(Path("/sys/fs/cgroup").glob(f"**/{PARENT}{zygote}")))
    return processes + groups + (Path("/proc/self/mountinfo").read_text() != mounts_before)


async def measure(count: int) -> dict[str, float]:
    mounts = Path("/proc/self/mountinfo").read_text()
    backend = NamespacesBackend()
    found = backend.probe()
    if not found.usable:
        sys.exit(f"no sandbox here: {'; '.join(found.reasons)}")
    with tempfile.TemporaryDirectory() as folder:
        env = write_environment(Path(folder))
        await starts(backend, env, 5)
        metrics = await starts(backend, env, count)
        async with await backend.start(env) as sandbox:
            metrics |= await calls(sandbox, count)
        metrics["create_per_s"] = await creates(backend, env, count * 2)
        zygote = backend._zygote
        assert zygote is not None
        await backend.close()
    metrics["leftovers"] = leftovers(zygote._process.pid, mounts)
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="repetitions of each measurement")
    parser.add_argument("--realtime", action="store_true", help="run ahead of everything else (root, busy machine)")
    options = parser.parse_args()
    count = options.count
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    load_before = os.getloadavg()[0]
    metrics = asyncio.run(measure(count))
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts"]
    peers = {
        "plain_bash_ms_p50": peer_ms(["bash", "-c", "echo hi"], count),
        "unshare_bash_ms_p50": peer_ms([*namespaces, "bash", "-c", "echo hi"], count),
    }
    conditions = {"root": os.geteuid() == 0, "realtime": options.realtime, "load_1m_before": round(load_before, 2)}
    report.emit("sandbox", metrics, goals=GOALS, peers=peers, conditions=conditions)


if __name__ == "__main__":
    main()
