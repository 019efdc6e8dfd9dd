"""What the readers of every language report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "rewrites-itself",  # text of source files is changed and executed, or written back
    "reads-tests",  # product code opens test files
    "runs-tests",  # product code starts the test runner
    "chooses-candidate",  # several implementations; the one that gives the expected values is kept
    "detects-tests",  # a condition on whether a test runs
    "reaches-runner",  # the runner, its report or what it calls is replaced
    "ends-process",  # the process is ended with success
    "loads-runner",  # product code imports a test framework
    "unread",  # more than is read of one file
    "exit-hook",  # something runs when the process ends
    "loads-code",  # other files are imported or executed unchanged: plug-ins, settings
]


@dataclass(frozen=True, slots=True)
class Flow:
    """One fact about a file, at a span of characters of its text."""

    kind: Kind
    note: str
    start: int
    end: int
