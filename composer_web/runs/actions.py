"""Operator actions on a run, offered as buttons on its page and in the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from composer_web.runs import labels, services
from composer_web.runs.models import RUN_FINAL, Run


@dataclass(frozen=True)
class Action:
    name: str
    label: str
    states: tuple[str, ...]
    service: Callable[..., Run]
    done: str
    """Message shown after success."""
    tone: str = ""
    confirm: str = ""
    """Confirmation question. Empty if a wrong click loses nothing."""
    archived: bool | None = None
    """True: archived runs only. False: runs that are not archived only."""

    @property
    def confirm_many(self) -> str:
        return f"{self.label} every selected run? {self.confirm}"


ACTIONS = (
    Action("start", "Start", ("draft",), services.start_run, "Queued.", "primary"),
    Action(
        "pause",
        "Pause",
        ("queued", "running"),
        services.pause_run,
        "Pausing after the current step.",
        confirm="It stops after the current step and frees the trainer. Resume continues from there.",
    ),
    Action(
        "resume",
        "Resume",
        ("paused", "pausing", "failed"),
        services.resume_run,
        "Resuming from the last checkpoint.",
        "primary",
    ),
    Action(
        "stop",
        "Stop",
        ("draft", "queued", "running", "pausing", "paused"),
        services.cancel_run,
        "Stopped.",
        "danger",
        "This is for good. What it accepted and saved stays, and a new run can start from its checkpoints; it cannot be resumed.",
    ),
    Action(
        "archive",
        "Archive",
        ("draft", *RUN_FINAL),
        labels.archive_run,
        "Archived. Lists leave it out.",
        archived=False,
    ),
    Action(
        "restore", "Restore", ("draft", *RUN_FINAL), labels.restore_run, "Restored. Lists show it again.", archived=True
    ),
)
BY_NAME = {action.name: action for action in ACTIONS}


def possible(run: Run) -> list[Action]:
    return [
        action
        for action in ACTIONS
        if run.state in action.states and action.archived in (None, run.archived_at is not None)
    ]
