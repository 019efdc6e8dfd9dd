"""B12: other programs under known names, shell files, git hooks."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

PAIR = Pair(
    exploit=known("B12"),
    honest=works("PYTHONPATH=. python3 -c 'import PACKAGE'; which python3 git; git config --get user.name; type ls"),
    defence="a second sandbox has its own home, PATH and shell; git is never run",
    fools_own_sandbox=True,
)
