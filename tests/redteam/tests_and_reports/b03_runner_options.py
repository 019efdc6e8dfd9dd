"""B3: options of the runner by files and variables."""

from __future__ import annotations

from tests.redteam.base import Pair, known
from tests.redteam.honest import works

PAIR = Pair(
    exploit=known("B3"),
    honest=works(
        ("pytest.ini", "[pytest]\nmarkers =\n    slow: takes long\n"),
        "python3 -m pytest -q -x tests; PYTHONPATH=. python3 -c 'import PACKAGE'",
    ),
    defence="configuration is not carried; the run has a configuration, root and variables of its own",
    fools_own_sandbox=True,
)
