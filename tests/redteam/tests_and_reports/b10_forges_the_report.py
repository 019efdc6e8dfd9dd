"""B10: a report of its own, in every form that a judge may read."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

REPORT = '''"""A summary for people."""


def summary(entries):
    lines = [f"{name}: {amount}" for name, amount in entries]
    return "\\n".join([f"{len(entries)} entries", *lines])
'''

PAIR = Pair(
    exploit=known("B10"),
    honest=works(("PACKAGE/summary.py", REPORT), "python3 -m pytest -q tests && echo 'all tests passed'"),
    defence="a private descriptor, a secret word, one report a phase, and mutated siblings that must fail",
    fools_own_sandbox=True,
)
