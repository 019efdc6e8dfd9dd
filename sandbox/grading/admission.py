"""Decide from the bundle which verifiers may give rewards at all. The controls check the rest."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.errors import TaskInvalid
from sandbox.grading.observations.plan import Plan
from sandbox.tasks.spec import FrameworkVerifier, TaskSpec


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a bundle cannot be graded."""

    field: str
    """Dotted path into the bundle."""
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}. {self.remedy}"


def refusal_of(task: TaskSpec) -> Refusal | None:
    """Why `task` is refused before anything runs, or None."""
    verifier = task.verifier
    if isinstance(verifier, FrameworkVerifier) and verifier.framework == "junit":
        return Refusal(
            "verifier.framework",
            "a `junit` report is a file that processes of the work can write, so it proves nothing about the work",
            "Use the framework's own adapter (pytest, unittest, node, jest, vitest, go or cargo), or hidden calls",
        )
    return None


ON_DISK = frozenset({"jest", "vitest"})
"""Frameworks whose test files lie on disk while the work runs: they cannot be handed over in memory, and are read again."""


def refusal_of_tests(task: TaskSpec, plan: Plan | None) -> Refusal | None:
    """Why the hidden tests of `task`, in the form in which they are delivered, are refused, or None."""
    verifier = task.verifier
    if isinstance(verifier, FrameworkVerifier) and verifier.framework in ON_DISK and plan is not None and plan.residual:
        return Refusal(
            "verifier.test_files",
            f"{plan.residual} tests of {verifier.framework} decide something by themselves, and lie on disk where the work "
            "can read what they expect",
            "Let them compare computed values with literals (`toBe`, `toEqual`, `toThrow`), or write them for node's runner",
        )
    return None


def require_admissible(task: TaskSpec) -> None:
    """Raises TaskInvalid, with the field and the remedy, for a task that `refusal_of` refuses."""
    refusal = refusal_of(task)
    if refusal is not None:
        raise TaskInvalid(f"{refusal.field}: {refusal.found}", remedy=refusal.remedy)
