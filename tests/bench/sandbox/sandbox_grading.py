"""What grading in a clean sandbox adds to the tests' own time.

The same hidden tests, by the same runner with the same arguments, run in a sandbox that already holds the work and the
pristine files; the difference to a whole grading is the start of the clean sandbox, carrying the work, planting and
running the canaries, reading the report, and the end. Both are measured in turns, so that other work on the machine
falls on both.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

from sandbox.backends.base import Backend
from sandbox.grading.adapters import adapter_of
from sandbox.grading.grader import grade
from sandbox.grading.patches.apply import apply, write_tests
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Verdict
from sandbox.grading.verifiers.canary_pool import CanaryPool
from sandbox.grading.verifiers.suite import collect, order_of, prepare_suite
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import SuiteVerifier
from tests.redteam import tasks


async def added_ms(backend: Backend, folder: Path, count: int) -> dict[str, float]:
    """Medians of a grading, of the tests alone, and of the difference of neighbours, in milliseconds."""
    environments = EnvironmentStore(folder)
    task = (await tasks.build(backend, environments))["ledger"]
    assert isinstance(task.verifier, SuiteVerifier)
    patch = from_files(task, task.gold)
    plain = prepare_suite(task.verifier, CanaryPool(bundle_hash=task.bundle_hash), random.Random(0))
    ids = (*task.verifier.fail_to_pass, *task.verifier.pass_to_pass)
    order = order_of(task, task.verifier, environments, ids)
    whole, alone, added = [], [], []
    async with await backend.start(environments.spec(task.environment)) as box:
        await apply(box, patch.changes)
        await write_tests(box, plain.files)
        for number in range(count + 1):
            began = time.perf_counter()
            run = await collect(box, adapter_of(task.verifier), order)
            tests = time.perf_counter() - began
            assert run.finished and all(run.status(test_id) == "passed" for test_id in ids)
            began = time.perf_counter()
            report = await grade(backend=backend, environments=environments, task=task, patch=patch)
            graded = time.perf_counter() - began
            assert report.verdict is Verdict.PASSED and report.canaries, report.cause
            if number:  # the first grading makes the pool of canaries
                whole.append(graded)
                alone.append(tests)
                added.append(graded - tests)
    medians = {"grading": whole, "grading_tests": alone, "grading_added": added}
    return {f"{name}_ms_p50": round(statistics.median(values) * 1e3, 1) for name, values in medians.items()}
