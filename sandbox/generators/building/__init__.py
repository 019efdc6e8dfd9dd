"""From a draft to a task: what every generator shares.

`builder` derives the hidden tests and runs the controls, `screening` tries many drafts in one sandbox first,
`verifiers` writes checks for work that is no bug fix, `instructions` and `rewriting` word the request, `pruning`
removes tests from files, `yields` counts results.
"""

from sandbox.generators.building.builder import TaskBuilder, first_task, harvest, make_task
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.generators.building.yields import Yield, YieldStore

__all__ = ["Draft", "Reason", "Rejected", "TaskBuilder", "Yield", "YieldStore", "first_task", "harvest", "make_task"]
