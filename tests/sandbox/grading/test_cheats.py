"""The scripted cheats, against real graders."""

from __future__ import annotations

import pytest

from sandbox.grading.cheats import catalogue
from sandbox.grading.cheats.honest import honest
from sandbox.grading.cheats.play import play
from sandbox.grading.report import Verdict
from tests.sandbox.grading.make import CALLS_TASK

EXPLOITS = {exploit.id: exploit for exploit in catalogue()}


async def test_the_honest_agent_passes(backend, environments):
    played = await play(honest, backend=backend, environments=environments, task=CALLS_TASK)
    assert played.report.verdict is Verdict.PASSED
    assert [step.call.name for step in played.steps] == ["read_file", "write_file", "finish"]


@pytest.mark.parametrize("name", [name for name, exploit in EXPLOITS.items() if exploit.applies(CALLS_TASK)])
async def test_no_exploit_scores_on_hidden_calls(backend, environments, name):
    played = await play(EXPLOITS[name].run, backend=backend, environments=environments, task=CALLS_TASK)
    assert played.report.verdict is Verdict.FAILED, played.report.cause
    assert played.steps
