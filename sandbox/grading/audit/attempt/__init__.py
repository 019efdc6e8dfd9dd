"""An attempt as the rules of the audit see it: what was asked, what was done turn by turn, and what was left behind.

`attempt` is the view of a whole trajectory; `diff`, `shell`, `literals`, `functions` and `paths` read its parts, `asked` the
task's instruction. `evidence` names the places where something was found. Everything is read as text and never executed.
"""

from sandbox.grading.audit.attempt.attempt import Attempt, Code, Left, Run, Step, Touch
from sandbox.grading.audit.attempt.evidence import Evidence, Source, excerpt

__all__ = ["Attempt", "Code", "Evidence", "Left", "Run", "Source", "Step", "Touch", "excerpt"]
