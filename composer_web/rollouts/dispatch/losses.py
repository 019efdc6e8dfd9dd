"""Causes of lost groups. The type of the error sets the cause where it occurs; the message is never parsed."""

from __future__ import annotations

from django.db import InterfaceError, OperationalError

from sandbox.backends.base import SandboxError
from sandbox.errors import TaskError
from sandbox.grading.grader import cause_of
from sandbox.grading.verdict.outcomes import Cause, Loss
from trainer.inference.contract import InferenceError
from trainer.rollouts.fork import ForkImpossible


class GroupFailed(Exception):
    """The infrastructure under a group failed, independent of the policy. The failure is counted, shown and retried."""

    def __init__(self, outcome: Cause, message: str) -> None:
        super().__init__(message)
        self.loss = Loss(outcome, message)


class GroupEnded(Exception):
    """The group must not run: its run or evaluation ended, its task or policy is unusable, or this worker is
    stopping."""

    def __init__(self, outcome: Cause, message: str) -> None:
        super().__init__(message)
        self.loss = Loss(outcome, message)


def loss_of(error: BaseException) -> Loss:
    """Loss by the type of the error: the first real error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, GroupFailed | GroupEnded):
        return error.loss
    if isinstance(error, InferenceError):
        return Loss(error.outcome, str(error))
    if isinstance(error, ForkImpossible):
        return Loss(Cause.SNAPSHOT_MISSING, str(error))
    known = isinstance(error, SandboxError | TaskError | OSError | OperationalError | InterfaceError)
    outcome = cause_of(error) if known and isinstance(error, Exception) else Cause.INTERNAL_ERROR
    return Loss(outcome, f"{type(error).__name__}: {error}")
