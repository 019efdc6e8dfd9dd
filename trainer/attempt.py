"""The view of a trajectory for the auditor and language models: no verdict, no reward."""

from __future__ import annotations

from sandbox.grading.audit import Attempt, Step
from sandbox.tasks.spec import TaskSpec
from trainer.types import Trajectory


def attempt_of(trajectory: Trajectory, task: TaskSpec | None) -> Attempt:
    """Build the attempt. Without a task, the instruction comes from the episode's messages."""
    steps = tuple(Step(turn.text, turn.calls, turn.results) for turn in trajectory.turns)
    instruction = task.instruction if task else ""
    for message in trajectory.messages:
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            instruction = message["content"]
            break
    return Attempt(instruction, steps, trajectory.patch, trajectory.patch_skipped, task)
