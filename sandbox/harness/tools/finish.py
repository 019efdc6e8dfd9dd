"""finish: the policy says that its work is complete."""

from __future__ import annotations

from pydantic import Field

from sandbox.harness.ordering import WRITES_ALL, Access
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext


class FinishArguments(Arguments):
    summary: str = Field(default="", max_length=4000, description="What was done, in a few sentences.")


class Finish(Tool[FinishArguments]):
    name = "finish"
    description = "End the task: the work is complete. Call it once, last."
    arguments = FinishArguments

    def access(self, arguments: FinishArguments) -> tuple[Access, ...]:
        return WRITES_ALL

    async def run(self, arguments: FinishArguments, context: ToolContext) -> Output:
        context.finished = True
        context.summary = arguments.summary
        return Output("")
