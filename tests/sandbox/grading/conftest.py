"""A task with a hidden pytest suite over a built package."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.grading.grader import grade
from sandbox.grading.verdict.report import Report
from sandbox.tasks.spec import TaskSpec
from tests.sandbox.grading.make import LEDGER, ledger_task


@pytest.fixture(scope="session")
def ledger(build) -> TaskSpec:
    """The task of `make.LEDGER` over its built environment."""
    return ledger_task(asyncio.run(build(LEDGER)))


@pytest.fixture
def judge(backend, environments):
    """`await judge(patch, task)`."""

    async def run(work, task) -> Report:
        return await grade(backend=backend, environments=environments, task=task, patch=work)

    return run
