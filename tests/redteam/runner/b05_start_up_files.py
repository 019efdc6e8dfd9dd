"""B5: files that every start of the interpreter loads, and modules that hide the standard library."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

PAIR = Pair(
    exploit=known("B5"),
    honest=works(
        ("PACKAGE/calendar.py", '"""Months of entries."""\n\nMONTHS = 12\n'),
        "python3 -c 'import site, sys; print(site.getsitepackages(), sys.path)'; python3 -m pytest -q",
    ),
    defence="such paths are dropped; the interpreter starts without user packages and without the checkout on its path",
    fools_own_sandbox=True,
)
