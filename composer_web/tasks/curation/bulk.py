"""One change of many tasks, as page, API and command line ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.tasks.curation import services, training
from composer_web.tasks.models import Task

Action = Literal["tag", "untag", "split", "suite", "unsuite", "leave_training"]
LEAVE_TRAINING = "leave_training"


def change(*, tasks: Sequence[Task], action: str, value: str, actor: User) -> services.Batch:
    """One action on all of these tasks or on none of them: those of `services.apply`, and `leave_training`, which takes them
    out of every live training suite. Raises UserError, NotFound, Conflict."""
    if action != LEAVE_TRAINING:
        return services.apply(tasks=tasks, action=action, value=value, actor=actor)  # type: ignore[arg-type]  # it checks
    if not tasks:
        raise UserError("tasks", "choose at least one task")
    if len(tasks) > services.MAX_TASKS:
        raise UserError("tasks", f"at most {services.MAX_TASKS} tasks at once, not {len(tasks)}")
    return training.move_out(tasks=tasks, actor=actor)
