"""Work that holds its grading: the sandbox is gone within the limit of the tests and five seconds."""

from __future__ import annotations

import pytest

from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers import calls
from tests.sandbox.grading.make import CALLS_TASK, patch
from tests.sandbox.grading.verifiers.test_differential import WRONG, left, points

pytestmark = pytest.mark.integration

__all__ = ["points"]

LIMIT, LATE = 3.0, 5.0
SLEEPS = "import time\ndef total(items):\n    time.sleep(1000)\n"
STOPS = "import os, signal\ndef total(items):\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
LEAVES = """import os, signal, time
def total(items):
    for _ in range(8):
        if os.fork() == 0:
            os.setsid()
            [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]
            time.sleep(1000)
    time.sleep(1000)
"""
TWICE = "import time\ndef total(items):\n    time.sleep(0.11)\n    return sum(items)\n"
"""Right, and within the limit if each pass had one of its own."""
WORK = {"asleep": SLEEPS, "stopped": STOPS, "leaves processes": LEAVES, "slow in every pass": TWICE}
HOLDS = WRONG.replace(
    "        return Point(self.x + other.x",
    "        __import__('time').sleep(1000)\n        return Point(self.x + other.x",
)
SLOW = HOLDS.replace("self.y - other.y", "self.y + other.y").replace("sleep(1000)", "sleep(0.4)")
"""Right, and too slow for two runs in one limit."""


def limited(task):
    return task.model_copy(update={"verifier": task.verifier.model_copy(update={"timeout_seconds": LIMIT})})


@pytest.mark.parametrize("name", WORK)
async def test_hidden_calls(judge, monkeypatch, name):
    monkeypatch.setattr(calls, "AGAIN_SHARE", 1.0)
    task = limited(CALLS_TASK)
    usual = await judge(from_files(task, task.gold), task)
    report = await judge(patch(totals=WORK[name]), task)
    assert usual.verdict is Verdict.PASSED
    assert report.verdict is Verdict.FAILED or name == "slow in every pass", report
    assert report.seconds - usual.seconds < LIMIT + LATE, report


@pytest.mark.slow
@pytest.mark.parametrize("text", [HOLDS, SLOW], ids=["asleep", "slow in both runs"])
async def test_a_suite_that_is_run_twice(judge, points, text):
    task = limited(points)
    for _ in range(2):  # the first also makes the canaries, once for a task
        usual = await judge(from_files(task, task.gold), task)
    assert usual.verdict is Verdict.PASSED, usual
    report = await judge(left(text), task)
    assert report.outcome is Cause.TIME_OUT, report
    assert report.seconds - usual.seconds < LIMIT + LATE, report
