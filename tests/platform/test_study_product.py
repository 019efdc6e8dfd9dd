"""`make study` in the size that shows every step, against a product of its own: stopped once in the middle, then finished."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.stack.layout import REPOSITORY
from scripts.study.report import Report
from scripts.study.state import State
from scripts.study.steps import PHASES, SUITES

from .conftest import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
SECONDS = 3600.0


def begin(stack: Stack, log: Path) -> subprocess.Popen[str]:
    """The study as a process; its progress goes to `log`."""
    with log.open("a") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "scripts.study", "--size", "smoke"],
            cwd=REPOSITORY,
            env=stack.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )


def done(stack: Stack) -> set[str]:
    path = stack.data / "study" / "smoke-0.json"
    return set(State.model_validate_json(path.read_text()).done) if path.is_file() else set()


def test_a_study_that_was_stopped_goes_on_and_ends_with_a_table(stack: Stack, tmp_path: Path) -> None:
    log = tmp_path / "study.log"
    first = begin(stack, log)
    deadline = time.monotonic() + SECONDS
    while "demonstrations" not in done(stack):
        assert first.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(1)
    first.send_signal(signal.SIGTERM)
    assert first.communicate(timeout=60)[0] == ""
    assert first.returncode == 130, log.read_text()
    before = done(stack)

    second = begin(stack, log)
    out, _ = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, log.read_text()
    line = json.loads(out.splitlines()[-1])
    assert line["bench"] == "study"
    assert before < done(stack)
    report = Report.model_validate_json((stack.data / "study" / "smoke-0.report.json").read_text())
    assert {suite: set(row) for suite, row in report.table.items()} == {suite: set(PHASES) for suite in SUITES}
    assert all(cell.rollouts for row in report.table.values() for cell in row.values())
    assert 0 < (report.demonstrations["pass1"] or 0) < 1, "the expert is wrong on purpose"
    loss = [value for _, value in report.curves["sft"]["loss/train"]]
    assert loss[-1] < loss[0]
    assert report.curves["rl"]["reward/mean"]
