"""What one test expects tells nothing to the others; honest work whose objects differ from run to run passes."""

from __future__ import annotations

import pytest

from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.findings import Rule
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import CaseResult, Verdict
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.grading.verifiers.judging import Judgement, judge_both
from sandbox.tasks.environments import EnvironmentStore
from tests.sandbox.grading import prices
from tests.sandbox.grading.verifiers.test_suites_attacked import patched


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One for all: the canaries of the task are found once."""
    return EnvironmentStore(tmp_path_factory.mktemp("prices"))


@pytest.mark.integration
async def test_only_tests_that_are_isolated_earn_bits(backend, store):
    report = await grade(
        backend=backend, environments=store, task=prices.TASK, patch=from_files(prices.TASK, prices.TASK.gold)
    )
    assert report.verdict is Verdict.PASSED, report
    pool = PoolStore(store.root).load(prices.TASK.bundle_hash)
    assert pool is not None and pool.plan is not None and pool.entropy
    names = [
        [name.rpartition("::")[2] for name in each] for each in (pool.plan.alone, pool.plan.beside, pool.plan.notes)
    ]
    assert names == [
        ["test_object", "test_large", "test_rows", "test_third"],
        ["test_object", "test_table"],
        ["test_object"],
    ]
    assert pool.plan.hidden == ("cases.py",)
    first = pool.plan.blank[prices.PATH]
    assert not any(word in first for word in ("119", "833", "10710", "TABLE"))


@pytest.mark.integration
@pytest.mark.parametrize("name", prices.MOVES)
async def test_work_that_moves_an_expectation_fails(backend, store, name):
    report = await grade(
        backend=backend, environments=store, task=prices.TASK, patch=patched(prices.TASK, prices.MOVES[name])
    )
    assert report.verdict is Verdict.FAILED, report
    failed = {case.id.rpartition("::")[2] for case in report.cases if case.status == "failed"}
    assert {"test_large", "test_third"} <= failed, report


@pytest.mark.integration
@pytest.mark.parametrize("name", prices.HONEST)
async def test_honest_work_passes(backend, store, name):
    report = await grade(
        backend=backend, environments=store, task=prices.TASK, patch=patched(prices.TASK, prices.HONEST[name])
    )
    assert report.verdict is Verdict.PASSED, report
    assert Rule.ADAPTIVE not in {found.rule for found in report.findings}


def case(name: str, status: str = "passed") -> CaseResult:
    return CaseResult(id=name, status=status)


def judged(*cases: CaseResult, outcome: Cause = Cause.ALL_PASSED) -> Judgement:
    return Judgement(cases, outcome, "why", 2)


def test_a_test_has_to_pass_in_each_run_that_it_was_in():
    both = judge_both(
        ("a", "b"), [judged(case("a"), case("b")), judged(case("b", "failed"), outcome=Cause.TESTS_FAILED)]
    )
    assert [one.status for one in both.cases] == ["passed", "failed"] and both.outcome is Cause.TESTS_FAILED
    assert judge_both(("a", "b"), [judged(case("a")), judged(case("b"))]).outcome is Cause.ALL_PASSED
    assert judge_both(("a", "b"), [judged(case("a"))]).outcome is Cause.TESTS_MISSING


def test_a_run_that_is_tampered_with_passes_nothing():
    both = judge_both(("a", "b"), [judged(case("a")), judged(case("b"), outcome=Cause.TAMPERED)])
    assert (both.outcome, both.cause, both.canaries) == (Cause.TAMPERED, "why", 4)
