"""Controls: before a task may train, its oracle must pass and doing nothing must fail, several times each."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from sandbox.backends.base import Backend, Patch
from sandbox.grading.grader import grade
from sandbox.grading.patch import from_files
from sandbox.grading.report import Report, Verdict
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskInvalid
from sandbox.tasks.spec import TaskSpec


class Controls(BaseModel):
    """Outcome of the controls of one bundle; worthless for any other bundle hash."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    bundle_hash: str
    oracle: tuple[Verdict, ...]
    noop: tuple[Verdict, ...]
    ok: bool
    reason: str = ""
    """Why the task must not train, in one line; empty when it may."""
    seconds: float = 0.0


async def run_controls(*, backend: Backend, environments: EnvironmentStore, task: TaskSpec, k: int = 3) -> Controls:
    """Grade the oracle and an empty patch `k` times each. Stops at the first verdict that disqualifies the task."""
    oracle: list[Report] = []
    noop: list[Report] = []
    for _ in range(k):
        oracle.append(await _grade(backend, environments, task, from_files(task, task.gold)))
        noop.append(await _grade(backend, environments, task, Patch()))
        reason = _reason(oracle[-1], noop[-1])
        if reason:
            break
    return Controls(
        bundle_hash=task.bundle_hash,
        oracle=tuple(report.verdict for report in oracle),
        noop=tuple(report.verdict for report in noop),
        ok=not reason,
        reason=reason,
        seconds=sum(report.seconds for report in (*oracle, *noop)),
    )


async def require_controls(*, backend: Backend, environments: EnvironmentStore, task: TaskSpec, k: int = 3) -> Controls:
    """`run_controls`, raising TaskInvalid with the cause when the task must not train."""
    controls = await run_controls(backend=backend, environments=environments, task=task, k=k)
    if not controls.ok:
        raise TaskInvalid(f"task {task.id} fails its controls: {controls.reason}", remedy="It cannot join a suite")
    return controls


async def _grade(backend: Backend, environments: EnvironmentStore, task: TaskSpec, patch: Patch) -> Report:
    return await grade(backend=backend, environments=environments, task=task, patch=patch)


def _reason(oracle: Report, noop: Report) -> str:
    if oracle.verdict is not Verdict.PASSED:
        return f"the oracle is {oracle.verdict.value} ({oracle.cause})"
    if noop.verdict is not Verdict.FAILED:
        return f"doing nothing is {noop.verdict.value} ({noop.cause or 'all cases passed'})"
    return ""
