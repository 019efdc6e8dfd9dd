"""`make bench NAME=sandbox_docker`: how fast sandboxes of the Docker backend start and answer, and what they leave.

Uses the engine that answers, else starts a private one (root). `--runtime runsc` measures another runtime. Prints one
JSON object as its last line; the words are those of `sandbox`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from sandbox.backends.base import Limits
from sandbox.backends.docker import leases
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings
from tests.bench import report
from tests.bench.sandbox.sandbox import percentiles, timed, write_environment
from tests.docker_engine import NoEngine, engine

GOALS: dict[str, report.Goal] = {"leftovers": ("==", 0.0)}
LIMITS = dataclasses.replace(Limits(), required=frozenset({"memory", "disk"}))


async def measure(settings: DockerSettings, folder: Path, count: int) -> dict[str, float]:
    backend = DockerBackend(settings)
    found = await asyncio.to_thread(backend.probe)
    if not found.usable:
        sys.exit(f"no sandbox here: {'; '.join(found.reasons)}")
    env = write_environment(folder / "environment")
    starts, closes = [], []
    async with await backend.start(env, limits=LIMITS):  # the copy of the layer is made once
        pass
    for _ in range(count):
        clock = asyncio.get_running_loop().time
        began = clock()
        box = await backend.start(env, limits=LIMITS)
        await box.exec("echo hi")
        starts.append(clock() - began)
        began = clock()
        await box.close()
        closes.append(clock() - began)
    metrics = percentiles("start", starts) | percentiles("close", closes)
    async with await backend.start(env, limits=LIMITS) as box:
        path = "package1/module1.py"
        metrics |= await timed("read", count * 10, lambda: box.read(path))
        metrics |= await timed("write", count * 10, lambda: box.write("written.py", b"x" * 4096))
        metrics |= await timed("list", count * 10, lambda: box.list("package1"))
        metrics |= await timed("shell_call", count * 5, lambda: box.exec("true"))
        metrics |= await timed("diff", count * 5, box.diff)
        numbers = iter(range(10**6))
        metrics |= await timed("checkpoint", 3, lambda: box.snapshot(folder / f"snapshot{next(numbers)}"))
    await backend.close()
    mine = leases.folder_id(settings.leases)
    left = Engine(settings.socket_url()).labelled(leases.FOLDER_LABEL, mine)
    return metrics | {"leftovers": float(sum(map(len, left)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=15, help="repetitions of a start; calls take more")
    parser.add_argument("--runtime", default="", help="a runtime that the engine knows")
    options = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    try:
        with engine() as url, tempfile.TemporaryDirectory() as folder:
            settings = DockerSettings(url=url, runtime=options.runtime, leases=Path(folder) / "leases")
            metrics = asyncio.run(measure(settings, Path(folder), options.count))
    except NoEngine as missing:
        sys.exit(f"docker: {missing}")
    conditions = {"runtime": options.runtime or "default", "load_1m_before": load_before}
    report.emit("sandbox_docker", metrics, goals=GOALS, conditions=conditions)


if __name__ == "__main__":
    main()
