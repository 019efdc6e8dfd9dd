"""Controls: what must hold for a task before it may train a policy.

`run` grades the oracle, the untouched checkout, wrong patches and exploits; `mutants` makes the wrong patches.
"""

from sandbox.grading.controls.run import (
    Attempt,
    Controls,
    require_controls,
    run_controls,
    strength_of,
    withholds,
)
from sandbox.grading.version import GRADER

__all__ = ["GRADER", "Attempt", "Controls", "require_controls", "run_controls", "strength_of", "withholds"]
