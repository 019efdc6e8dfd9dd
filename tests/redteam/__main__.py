"""`make redteam`: play every pair on each backend of this machine, print the table, and keep it for the product.

Ends with 1 when an exploit scores, an honest run fails, an expected finding is missing, or an exploit proves nothing;
with 2 when no backend could be used.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sandbox.backends.base import Backend, SandboxUnavailable
from sandbox.grading.redteam import RedTeam, Row, save
from sandbox.tasks.environments import EnvironmentStore
from tests.docker_engine import NoEngine, engine
from tests.redteam import pairs, table, tasks
from tests.redteam.base import Pair
from tests.redteam.playing import Ground, try_pair

NAMES = ("namespaces", "docker")


def namespaces() -> Backend:
    from sandbox.backends.namespaces.backend import NamespacesBackend

    return NamespacesBackend()


def docker() -> Backend:
    from sandbox.backends.docker.backend import DockerBackend

    return DockerBackend()


MAKE: dict[str, Callable[[], Backend]] = {"namespaces": namespaces, "docker": docker}


@contextlib.contextmanager
def usable(name: str) -> Iterator[Backend]:
    """The backend, ready. Raises SandboxUnavailable, NoEngine."""
    with contextlib.ExitStack() as stack:
        if name == "docker":
            os.environ["DOCKER_HOST"] = stack.enter_context(engine())
        backend = MAKE[name]()
        found = backend.probe()
        if not found.usable:
            raise SandboxUnavailable("; ".join(found.reasons))
        yield backend


async def play(wanted: Sequence[Pair], name: str, backend: Backend, folder: Path, marks: tuple[str, ...]) -> list[Row]:
    environments = EnvironmentStore(folder)
    try:
        ground = Ground(name, backend, environments, await tasks.build(backend, environments), marks)
        for pair in wanted:
            if pair.task not in ground.tasks:
                print(f"{pair.exploit.id}: left out, no toolchain for {pair.task}", file=sys.stderr, flush=True)
        results = await asyncio.gather(*(try_pair(pair, ground) for pair in wanted if pair.task in ground.tasks))
    finally:
        await backend.close()
    return [result.row for result in results]


def run(wanted: Sequence[Pair], names: Sequence[str]) -> RedTeam:
    began = time.monotonic()
    mark = os.environ["OPENCOMPOSER_REDTEAM_MARK"] = secrets.token_hex(16)
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for name in names:
        try:
            with usable(name) as backend, tempfile.TemporaryDirectory() as folder:
                print(f"{name}: {len(wanted)} exploits and honest runs …", file=sys.stderr, flush=True)
                rows += asyncio.run(play(wanted, name, backend, Path(folder), (mark,)))
        except (NoEngine, SandboxUnavailable, ImportError) as error:
            left_out[name] = str(error)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return RedTeam(
        at=datetime.now(UTC),
        commit=commit.stdout.strip(),
        machine={
            "cpus": os.cpu_count() or 0,
            "arch": platform.machine(),
            "kernel": platform.release().split("-")[0],
            "user": "root" if os.geteuid() == 0 else "ordinary",
        },
        seconds=round(time.monotonic() - began, 1),
        backends=tuple(name for name in names if name not in left_out),
        left_out=left_out,
        rows=tuple(rows),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these (A1 …); their table is not kept")
    parser.add_argument(
        "--backends", default="", help=f"of {', '.join(NAMES)}, separated by commas; empty: all there are"
    )
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENCOMPOSER_DATA") or ".data"))
    options = parser.parse_args(arguments)
    names = [name for name in options.backends.split(",") if name]
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"no backend {', '.join(unknown)}; there are {', '.join(NAMES)}")
    every = pairs()
    if unknown := [exploit for exploit in options.ids if exploit not in {pair.exploit.id for pair in every}]:
        parser.error(f"no exploit {', '.join(unknown)}")
    chosen = [pair for pair in every if pair.exploit.id in options.ids or not options.ids]
    if lacking := tasks.missing(chosen):
        parser.error(lacking)
    found = run(chosen, names or NAMES)
    print(table.text(found))
    if not found.rows:
        return 2
    if not options.ids:
        print(f"kept in {save(options.data, found)}")
    asked_and_missing = set(names) & set(found.left_out)
    return 1 if found.bad or asked_and_missing else 0


if __name__ == "__main__":
    sys.exit(main())
