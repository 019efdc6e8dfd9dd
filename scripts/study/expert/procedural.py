"""The shipped expert of the procedural family as a script, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.procedural.expert import Habits, run_expert
from sandbox.tasks.spec import TaskSpec
from scripts.study.expert.script import Expert, Script, call


class NextCall(Exception):
    """The expert came to a call that has no output yet."""

    def __init__(self, wanted: ToolCall) -> None:
        super().__init__(wanted.name)
        self.wanted = wanted


class Transcript:
    """Answers the expert's calls with recorded outputs, and stops it at the first one without."""

    def __init__(self, outputs: Sequence[str]) -> None:
        self._left = list(outputs)

    async def run(self, calls: list[ToolCall]) -> list[ToolResult]:
        if not self._left:
            raise NextCall(calls[0])
        return [ToolResult(call_id=calls[0].id, output=self._left.pop(0))]


def script(task: TaskSpec, expert: Expert) -> Script:
    """Without slips and tampering: a small model imitates everything that it is shown."""
    habits = Habits(right=expert.accuracy, slip=0.0, tamper=0.0)

    def next_call(outputs: Sequence[str]) -> ToolCall:
        try:
            asyncio.run(run_expert(Transcript(outputs), task, expert.rng(task.id), habits))
        except NextCall as found:
            return found.wanted
        return call("finish")

    return next_call
