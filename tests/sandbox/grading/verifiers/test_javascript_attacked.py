"""JavaScript that learns what is expected outside the reports of its tests: each was paid, and is adaptive."""

from __future__ import annotations

import pytest

from sandbox.backends.base import Backend
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from tests.sandbox.grading.javascript_attacks import ATTACKS, READS_MEMORY, UNUSED
from tests.sandbox.grading.verifiers.test_suites_attacked import patched
from tests.sandbox.grading.verifiers.test_toolchains import in_sandbox

pytestmark = [pytest.mark.integration, pytest.mark.toolchains]


@pytest.fixture(autouse=True)
def _needs_node() -> None:
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")


@pytest.mark.parametrize("name", ATTACKS)
async def test_what_is_learned_elsewhere_is_adaptive_and_the_work_passes(backend: Backend, tmp_path, name):
    attack, store = ATTACKS[name], EnvironmentStore(tmp_path)
    for patch, cause in (
        (from_files(attack.task, attack.task.gold), Cause.ALL_PASSED),
        (patched(attack.task, attack.work), Cause.ADAPTIVE),
    ):
        report = await grade(backend=backend, environments=store, task=attack.task, patch=patch)
        assert report.outcome is cause, report
    pool = PoolStore(store.root).load(attack.task.bundle_hash)
    assert pool is not None and pool.plan is not None and len(pool.plan.notes) == attack.compared
    assert pool.plan.residual >= 1


@pytest.mark.parametrize("task", UNUSED, ids=lambda task: task.id)
async def test_remarks_and_what_nothing_uses_stay_outside(backend: Backend, tmp_path, task: TaskSpec):
    store = EnvironmentStore(tmp_path)
    for patch, cause in (
        (from_files(task, task.gold), Cause.ALL_PASSED),
        (patched(task, READS_MEMORY), Cause.TESTS_FAILED),
    ):
        report = await grade(backend=backend, environments=store, task=task, patch=patch)
        assert report.outcome is cause, report
