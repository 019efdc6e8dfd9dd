"""JavaScript, Go and Rust that adapt to the assertions which stay inside are adaptive; the right work passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.backends.base import Backend
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.findings import Rule
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from tests.sandbox.grading import greetings
from tests.sandbox.grading.verifiers.test_suites_attacked import patched, rust_store
from tests.sandbox.grading.verifiers.test_toolchains import in_sandbox

pytestmark = pytest.mark.toolchains


async def check(backend: Backend, store: EnvironmentStore, task: TaskSpec, adaptive: str) -> None:
    async def judged(patch) -> Report:
        return await grade(backend=backend, environments=store, task=task, patch=patch)

    good = await judged(from_files(task, task.gold))
    assert good.verdict is Verdict.PASSED, good
    pool = PoolStore(store.root).load(task.bundle_hash)
    assert pool is not None and pool.plan is not None
    assert (len(pool.plan.notes), pool.plan.residual) == (1, 1)
    report = await judged(patched(task, adaptive))
    assert report.outcome is Cause.ADAPTIVE, report
    assert Rule.ADAPTIVE in {found.rule for found in report.findings}


async def test_javascript(backend, tmp_path: Path):
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    await check(backend, EnvironmentStore(tmp_path), greetings.JS, greetings.JS_ADAPTIVE)


@pytest.mark.slow
async def test_go(backend, tmp_path: Path):
    if not in_sandbox("go"):
        pytest.skip("no go below /usr: apt install golang-go")
    await check(backend, EnvironmentStore(tmp_path), greetings.GO, greetings.GO_ADAPTIVE)


@pytest.mark.slow
async def test_rust(backend, tmp_path: Path):
    await check(backend, rust_store(tmp_path), greetings.RUST, greetings.RUST_ADAPTIVE)
