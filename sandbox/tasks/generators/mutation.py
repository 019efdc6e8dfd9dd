"""Debugging tasks made from real packages: one small wrong change in a function that the package's tests cover."""

from __future__ import annotations

from sandbox.backends.base import Backend, SandboxError
from sandbox.grading.controls import run_controls
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskInvalid
from sandbox.tasks.generators.producing import generate_tasks, mutation_tasks
from sandbox.tasks.generators.targets import Target, find_targets, split_of
from sandbox.tasks.spec import TaskSpec

__all__ = ["Target", "find_targets", "generate_tasks", "mutation_tasks", "revalidate", "split_of"]


async def revalidate(store: EnvironmentStore, task: TaskSpec, *, backend: Backend, k: int = 1) -> None:
    """Run a stored task's controls again here. Raises TaskInvalid with the cause, SandboxError."""
    controls = await run_controls(backend=backend, environments=store, task=task, k=k)
    if not controls.ok:
        if not controls.graded:
            raise SandboxError(controls.reason)
        raise TaskInvalid(f"task {task.id} fails its controls: {controls.reason}", remedy="It cannot join a suite")
