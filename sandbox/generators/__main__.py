"""Build environments of packages and, on demand, mutation tasks from them.

python -m sandbox.generators --data DIR [--tasks N] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox.backends.base import Backend, SandboxError
from sandbox.errors import TaskError
from sandbox.generators.registry import generate_tasks
from sandbox.packages.build import build_packages, with_backend
from sandbox.repositories import pins
from sandbox.tasks.environments import EnvironmentStore


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: build environments and, on demand, tasks; one JSON line a package."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.generators", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data directory; environments go to DIR/environments")
    parser.add_argument("--tasks", type=int, default=0, help="also make this many mutation tasks of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", help="packages of the lock; all when absent")
    options = parser.parse_args(arguments)
    store = EnvironmentStore(options.data / "environments")

    async def work(backend: Backend) -> None:
        for name in options.names or list(pins.read_lock()):
            (built,) = await build_packages(store, [name], backend=backend)
            line: dict[str, object] = {
                "package": f"{name} {built.version}",
                "environment": built.environment.digest,
                "tests": len(built.tests),
                "flaky": len(built.flaky),
            }
            if options.tasks:
                made = generate_tasks(store, built, backend=backend, count=options.tasks, seed=options.seed)
                line["tasks"] = [task.id async for task in made]
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    try:
        with_backend(work)
    except (TaskError, SandboxError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
