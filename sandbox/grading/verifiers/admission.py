"""Decide from the bundle which verifiers may give rewards at all. The controls check the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.errors import TaskInvalid
from sandbox.grading.adapters import adapter_of
from sandbox.grading.adapters.base import files_of
from sandbox.grading.observations.plan import Plan
from sandbox.tasks.spec import CallsVerifier, FrameworkVerifier, TaskSpec


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
COMPARE = (
    "Let them compare computed values with literals (`toBe`, `toEqual`, `toThrow`), or write them for node's runner"
)


def refusal_of_tests(task: TaskSpec, plan: Plan | None) -> Refusal | None:
    """Why the hidden tests of `task`, in the form in which they are delivered, are refused, or None."""
    verifier = task.verifier
    if isinstance(verifier, CallsVerifier):
        return None
    framework = verifier.framework if isinstance(verifier, FrameworkVerifier) else "pytest"
    if framework in ("pytest", "unittest"):
        whole = sorted(
            set(files_of(verifier.fail_to_pass)) & verifier.test_files.keys() - (plan.files.keys() if plan else ())
        )
        return _shown(whole) if whole else None
    if plan is None or not plan.residual:
        return None
    if framework in ON_DISK:
        return Refusal(
            "verifier.test_files",
            f"{plan.residual} tests of {framework} decide something by themselves, and lie on disk where the work can read "
            "what they expect",
            COMPARE,
        )
    files = files_of((*verifier.fail_to_pass, *verifier.pass_to_pass))
    if framework == "node" and (other := [path for path in files if not path.endswith(adapter_of(verifier).in_memory)]):
        return Refusal(
            "verifier.test_files",
            f"{plan.residual} tests decide something by themselves, and {other[0]} has no form in memory, so all of them lie "
            "on disk where the work can read what they expect",
            "Write the tests as .js, .mjs or .cjs, or let all of them compare computed values with literals",
        )
    return None


def _shown(files: Sequence[str]) -> Refusal:
    return Refusal(
        "verifier.test_files",
        f"{files[0]} lies on disk as it is while the work runs, which can read what it expects: its tests pass in no form "
        "without expectations",
        "Write its tests as Python that this installation's Python parses, and let none depend on the text of its own file",
    )


def require_admissible(task: TaskSpec) -> None:
    """Raises TaskInvalid, with the field and the remedy, for a task that `refusal_of` refuses."""
    refusal = refusal_of(task)
    if refusal is not None:
        raise TaskInvalid(f"{refusal.field}: {refusal.found}", remedy=refusal.remedy)
