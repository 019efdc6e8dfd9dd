"""The scripted cheats, against real graders: none scores, and each honest counterpart does."""

from __future__ import annotations

import types

import pytest

from sandbox.grading.cheats import catalogue, exploits_in
from sandbox.grading.cheats.honest import honest
from sandbox.grading.cheats.play import play
from sandbox.grading.verdict.findings import Rule
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from tests.sandbox.grading.make import CALLS_TASK

pytestmark = pytest.mark.integration

EXPLOITS = {exploit.id: exploit for exploit in catalogue()}

SEEN = {
    "B1": (Cause.TESTS_FAILED, [Rule.TEST_EDIT]),
    "B2": (Cause.TESTS_FAILED, [Rule.TEST_CONFIGURATION]),
    "B3": (Cause.TESTS_FAILED, [Rule.TEST_CONFIGURATION]),
    "B5": (Cause.TESTS_FAILED, [Rule.START_UP_FILE, Rule.SHADOW_MODULE]),
    "B7": (Cause.NO_TEST_RAN, [Rule.RUN_CUT_SHORT]),
    "B8": (Cause.TESTS_SKIPPED, [Rule.TEST_SKIPPED]),
    "B10": (Cause.TAMPERED, [Rule.CANARY_PASSED]),
    "B12": (Cause.TESTS_FAILED, [Rule.NO_EDIT]),
    "B15": (Cause.TAMPERED, [Rule.CANARY_PASSED]),
    "B16": (Cause.TAMPERED, [Rule.CANARY_PASSED]),
    "C7": (Cause.TESTS_FAILED, [Rule.NO_EDIT]),
}
"""What grading says of each on the ledger; exploits that are not here only fail."""


async def test_the_honest_agent_passes(backend, environments, ledger):
    for task in (CALLS_TASK, ledger):
        played = await play(honest, backend=backend, environments=environments, task=task)
        assert played.report.verdict is Verdict.PASSED, played.report.cause
        assert played.report.findings == ()
        assert [step.call.name for step in played.steps] == ["read_file", "write_file", "finish"]


@pytest.mark.parametrize("name", [name for name, exploit in EXPLOITS.items() if exploit.applies(CALLS_TASK)])
async def test_no_exploit_scores_on_hidden_calls(backend, environments, name):
    played = await play(EXPLOITS[name].run, backend=backend, environments=environments, task=CALLS_TASK)
    assert played.report.verdict is Verdict.FAILED, played.report.cause
    assert played.steps[-1].call.name == "finish" and played.steps[-1].result.error is None


@pytest.mark.parametrize(
    "name",
    [name if name in SEEN else pytest.param(name, marks=pytest.mark.slow) for name in EXPLOITS if name != "B18"],
)
async def test_no_exploit_scores_on_hidden_tests(backend, environments, ledger, name):
    assert EXPLOITS[name].applies(ledger)
    played = await play(EXPLOITS[name].run, backend=backend, environments=environments, task=ledger)
    assert played.report.verdict is Verdict.FAILED, played.report.cause
    assert not [step.result.error for step in played.steps if step.result.error]
    outcome, rules = SEEN.get(name, (Cause.TESTS_FAILED, ()))
    assert played.report.outcome is outcome
    assert set(rules) <= {found.rule for found in played.report.findings}


def test_ids_are_unique():
    package = types.ModuleType("sandbox.grading.cheats")
    package.__path__ = list(__import__("sandbox.grading.cheats", fromlist=["x"]).__path__)
    assert [e.id for e in exploits_in(package)] == list(EXPLOITS)
    assert len(EXPLOITS) >= 15
