"""Let a scripted agent work on a task and grade what it leaves, as an episode does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandbox.backends.base import Backend, Limits, Patch, Sandbox
from sandbox.grading.cheats.base import Agent, Script, Step
from sandbox.grading.grader import grade
from sandbox.grading.verdict.report import Report
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec

Hand = Callable[[Sandbox, TaskSpec], Awaitable[None]]
"""Something done in the agent's sandbox, past its tools."""


@dataclass(frozen=True, slots=True)
class Played:
    """A scripted attempt: what was done, what was left, and the verdict."""

    steps: tuple[Step, ...]
    patch: Patch
    report: Report


async def play(
    script: Script,
    *,
    backend: Backend,
    environments: EnvironmentStore,
    task: TaskSpec,
    limits: Limits = Limits(),
    profile: str = "full",
    before: Hand | None = None,
    after: Hand | None = None,
) -> Played:
    """Run `script` in an agent's sandbox and grade its patch in a clean one.

    `before` prepares the sandbox (a leak, say), `after` looks at what the agent left in it. Raises SandboxError,
    HarnessFailure, TaskError for the machine's failures; grading's own are the verdict `infra_error` of the report.
    """
    async with await backend.start(environments.spec(task.environment), limits=limits) as sandbox:
        if before is not None:
            await before(sandbox, task)
        agent = Agent(Session(sandbox, get_profile(profile)))
        await script(agent, task)
        patch = await sandbox.diff()
        if after is not None:
            await after(sandbox, task)
    report = await grade(backend=backend, environments=environments, task=task, patch=patch)
    return Played(tuple(agent.steps), patch, report)
