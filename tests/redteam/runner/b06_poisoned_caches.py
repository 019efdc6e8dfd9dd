"""B6: byte code that is loaded in place of its source."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

PAIR = Pair(
    exploit=known("B6"),
    honest=works("python3 -m compileall -q PACKAGE && git status --short; python3 -m py_compile PRODUCT"),
    defence="caches and byte code are never carried; a clean sandbox compiles anew",
)
