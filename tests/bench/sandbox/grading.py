"""`make bench NAME=grading`: processor time of a verdict, beside that of an earlier commit, in one paired run.

Four kinds of task: hidden calls (`calls`), a task of the procedural family (`procedural`), a package with a pytest suite
(`package`), and a suite whose assertions stay in the sandbox, which is run twice (`residual`).

Each side is its own tree in a process of its own; what its sandboxes use is counted with it. A first run with few
verdicts is subtracted, so building the task and finding its canaries do not count. `ARGS=--before=<commit>`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from sandbox.tasks.procedural import generate
from tests.bench.report import emit
from tests.sandbox.grading.verifiers.test_differential import HELPER, PATH, RIGHT, TESTS, WRONG

BEFORE = "43c5eb9"
"""Grading with hidden tests on disk, their expectations beside the work."""
FEW, MANY = 2, 22
TASKS = ("calls", "procedural", "package", "residual")
GOAL = 1.5
WORKER = """
import asyncio, json, subprocess, sys, tempfile
from pathlib import Path
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.grading.grader import grade
try:
    from sandbox.grading.patches.patch import from_files
except ModuleNotFoundError:  # an earlier commit
    from sandbox.grading.patch import from_files
from sandbox.tasks.environments import EnvironmentStore
from tests.redteam import tasks
from tests.sandbox import shelf
from sandbox.tasks.spec import PytestVerifier, TaskSpec
from tests.sandbox.grading.make import CALLS_TASK

if not hasattr(shelf, "byte_compile"):  # an earlier commit, whose products compiled the tools and whose tests did not
    put = tasks.put_toolchain
    def compiled(cache):
        how = ("-q", "-x", "/(lexers|styles)/", "--invalidation-mode", "checked-hash")
        subprocess.run([sys.executable, "-I", "-m", "compileall", *how, str(put(cache))], check=True)
        return cache
    tasks.put_toolchain = compiled

async def task_of(name, given, backend, environments):
    if name == "calls":
        return CALLS_TASK
    if name == "procedural":
        return TaskSpec.model_validate(given)
    ledger = (await tasks.build(backend, environments))["ledger"]
    if name == "package":
        return ledger
    environment = ledger.environment.model_copy(update={"overrides": given["overrides"]})
    verifier = PytestVerifier.model_validate(given["verifier"])
    return ledger.model_copy(
        update={"id": "residual", "environment": environment, "verifier": verifier, "gold": given["gold"], "protected": ()}
    )

async def main(name, count, given):
    backend = NamespacesBackend()
    with tempfile.TemporaryDirectory() as folder:
        environments = EnvironmentStore(Path(folder))
        task = await task_of(name, given, backend, environments)
        for _ in range(count):
            report = await grade(
                backend=backend, environments=environments, task=task, patch=from_files(task, task.gold)
            )
            assert report.verdict == "passed", report
    await backend.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
"""


def given(task: str) -> dict[str, object]:
    """What both trees get of a task that neither has by itself."""
    if task == "procedural":
        return generate(7, "train").model_dump(mode="json")
    if task != "residual":
        return {}
    verifier = {"test_files": {PATH: TESTS, "tests/helpers.py": HELPER}, "timeout_seconds": 10.0}
    names = [f"{PATH}::{name}" for name in ("test_added", "test_zero", "test_three", "test_parts", "test_checked")]
    overrides, gold = {"ledger/__init__.py": WRONG}, {"ledger/__init__.py": RIGHT}
    return {"overrides": overrides, "verifier": {**verifier, "fail_to_pass": names}, "gold": gold}


def cpu_seconds(tree: Path, task: str, count: int) -> float:
    """Processor time of so many verdicts with all that they start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", WORKER, task, str(count), json.dumps(given(task))]
    subprocess.run(command, cwd=tree, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def verdict_ms(tree: Path, task: str) -> float:
    return (cpu_seconds(tree, task, MANY) - cpu_seconds(tree, task, FEW)) / (MANY - FEW) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default=BEFORE, help="commit to compare with")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    here = Path(__file__).parents[3]
    archive = subprocess.run(["git", "archive", options.before], cwd=here, capture_output=True, check=True).stdout
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        for task in TASKS:
            pairs = []
            for number in range(options.rounds):
                trees = [Path(folder), here] if number % 2 == 0 else [here, Path(folder)]
                times = {tree: verdict_ms(tree, task) for tree in trees}
                pairs.append((times[Path(folder)], times[here]))
            old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
            found |= {f"{task}_before_cpu_ms": round(old, 1), f"{task}_cpu_ms": round(new, 1)}
            found[f"{task}_cpu_ratio"] = round(statistics.median(b / a for a, b in pairs), 3)
    found["cpu_ratio"] = max(found[f"{task}_cpu_ratio"] for task in TASKS)
    emit("grading", found, goals={"cpu_ratio": ("<=", GOAL)}, conditions={"before": options.before})
    return 0


if __name__ == "__main__":
    sys.exit(main())
