"""A10: expected values read from the judge's frames and source lines."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

PAIR = Pair(
    exploit=known("A10"),
    honest=works(
        "python3 -c 'import inspect, PACKAGE; print(inspect.signature(len), PACKAGE.__file__)'",
        "python3 - <<'END'\nimport traceback\ntry:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()\nEND",
    ),
    defence="expected values never enter the sandbox; suites: siblings whose demands no work can meet",
    fools_own_sandbox=True,
)
