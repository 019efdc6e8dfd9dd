"""B8: tests skip instead of failing."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

TEST = """import sys

import pytest

from PACKAGE import balance


@pytest.mark.skipif(sys.platform == "win32", reason="posix paths")
def test_nothing():
    assert balance([]) == 0
"""

PAIR = Pair(
    exploit=known("B8"),
    honest=works(("tests/test_platforms.py", TEST), "python3 -m pytest -q -rs tests"),
    defence="skipped and expected-to-fail count as not passed, and are reported",
    fools_own_sandbox=True,
)
