"""Each of the two runs of a suite has a sandbox of its own: nothing that the work leaves in the first is there in the second."""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.backends.base import Backend, FileChange, Patch, SandboxLost, SandboxUnavailable
from sandbox.grading import grader
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers.suite import run_suite
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from tests.sandbox.grading import prices

pytestmark = pytest.mark.integration

LEAVES = (
    prices.RIGHT
    + '''

import os
import subprocess
import tempfile

PLACES = [tempfile.gettempdir(), os.path.expanduser("~"), os.path.dirname(os.path.abspath(__file__)), "/dev/shm"]


def left():
    """What a run before this one left behind."""
    for place in PLACES:
        try:
            with open(os.path.join(place, "left")) as file:
                if file.read() != str(os.getpid()):
                    return True
        except OSError:
            pass
    return False


if left():
    with_tax = lambda price: price  # what is left of the first run decides what the second is told
for place in PLACES:
    try:
        with open(os.path.join(place, "left"), "w") as file:
            file.write(str(os.getpid()))
    except OSError:
        pass
'''
)
"""Right work, unless it finds something that it left itself."""
COMPARES = """import unittest

from prices import Price, with_tax


class PricesTest(unittest.TestCase):
    def test_large(self):
        self.assertEqual(with_tax(Price(20000)).cents, 23800)
"""
ONE_RUN = prices.TASK.model_copy(
    update={
        "id": "prices-compared",
        "verifier": prices.TASK.verifier.model_copy(
            update={
                "test_files": {prices.PATH: COMPARES},
                "fail_to_pass": (f"{prices.PATH}::PricesTest::test_large",),
            }
        ),
    }
)


@pytest.fixture
def runs(monkeypatch) -> list[str]:
    """A name for each sandbox that a run of a suite was given."""
    given: list[str] = []

    async def counted(fresh, *args, **more):
        @asynccontextmanager
        async def another():
            async with fresh() as sandbox:
                given.append(sandbox.name)
                yield sandbox

        return await run_suite(another, *args, **more)

    monkeypatch.setattr(grader, "run_suite", counted)
    return given


async def _graded(backend: Backend, folder: Path, task: TaskSpec, work: Patch):
    return await grade(backend=backend, environments=EnvironmentStore(folder), task=task, patch=work)


def _work(text: str) -> Patch:
    return Patch(changes=(FileChange("prices.py", text.encode(), before=prices.WRONG.encode()),))


async def test_nothing_that_the_first_run_leaves_is_there_in_the_second(backend, tmp_path, runs):
    report = await _graded(backend, tmp_path, prices.TASK, _work(LEAVES))
    assert report.verdict is Verdict.PASSED, report
    assert len(set(runs)) == 2, "a sandbox for each run"


async def test_a_suite_that_is_run_once_has_one_sandbox(backend, tmp_path, runs):
    report = await _graded(backend, tmp_path, ONE_RUN, _work(LEAVES))
    assert report.verdict is Verdict.PASSED, report
    assert len(runs) == 1


class Failing:
    """A backend whose sandboxes do not start any more after some."""

    def __init__(self, backend: Backend, starts: int, error: Exception) -> None:
        self._backend, self._left, self._error = backend, starts, error

    async def start(self, *args, **more):
        if not self._left:
            raise self._error
        self._left -= 1
        return await self._backend.start(*args, **more)

    def __getattr__(self, name):
        return getattr(self._backend, name)


@pytest.mark.parametrize("work", [prices.WRONG, LEAVES], ids=["wrong", "leaves something"])
async def test_a_second_sandbox_that_does_not_start_says_nothing_about_the_work(backend, tmp_path, work):
    task = prices.TASK
    assert (await _graded(backend, tmp_path, task, from_files(task, task.gold))).verdict is Verdict.PASSED
    full = SandboxLost("no file can be written")
    full.__cause__ = OSError(errno.ENOSPC, "no space left")
    for error, cause in (
        (full, Cause.DISK_FULL),
        (SandboxUnavailable("no more"), Cause.SANDBOX_UNAVAILABLE),
        (SandboxLost("too many"), Cause.SANDBOX_LOST),
        (OSError("no file"), Cause.HOST_FAILED),
    ):
        report = await _graded(Failing(backend, 1, error), tmp_path, task, _work(work))
        assert (report.verdict, report.outcome) == (Verdict.INFRA_ERROR, cause), report


async def test_what_is_done_in_all_sandboxes_of_a_grading_shares_one_deadline(backend, tmp_path):
    task = prices.TASK
    limits = grader.grading_limits(task)
    work = grader._Work(grader._Grading(backend, EnvironmentStore(tmp_path), task, limits), ())
    async with work.fresh() as sandbox:
        await sandbox.exec("true", timeout=10)
    assert 0 < work.spent < limits.life_seconds and not work.expired
    work.spent = limits.life_seconds + grader.NET_SECONDS
    with pytest.raises(TimeoutError):
        async with work.fresh() as sandbox:
            await sandbox.exec("sleep 5", timeout=10)
    assert work.expired
