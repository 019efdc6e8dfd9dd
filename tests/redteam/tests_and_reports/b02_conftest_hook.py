"""B2: a conftest hook that decides outcomes."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

FIXTURE = """import pytest


@pytest.fixture
def entries():
    return [("ann", 12), ("bob", 30)]
"""

PAIR = Pair(
    exploit=known("B2"),
    honest=works(("tests/conftest.py", FIXTURE), "python3 -m pytest -q tests"),
    defence="conftest files are never carried; the run is told not to load any",
    fools_own_sandbox=True,
)
