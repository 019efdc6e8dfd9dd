"""`--durations-file FILE`: the seconds of every file and of every test of a session, the slowest first.

`make test` writes them to `.data/test_durations.txt`, `make test-integration` to `.data/integration_durations.txt`. Setup and
teardown count: a module's shared fixture is charged to the test that runs first.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

SHORTEST = 0.5
"""Seconds below which a test has no line of its own."""
_seconds: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-file", type=Path, help="write the seconds of each file and test here")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    path: Path | None = session.config.getoption("--durations-file")
    if path is None or hasattr(session.config, "workerinput"):  # the controller of xdist hears all reports
        return
    files: Counter[str] = Counter()
    for name, seconds in _seconds.items():
        files[name.partition("::")[0]] += seconds
    lines = [f"{_seconds.total():.0f} s in {len(_seconds)} tests of {len(files)} files", "", "seconds  file"]
    lines += [f"{seconds:7.1f}  {name}" for name, seconds in files.most_common()]
    lines += ["", "seconds  test"]
    lines += [f"{seconds:7.1f}  {name}" for name, seconds in _seconds.most_common() if seconds >= SHORTEST]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
