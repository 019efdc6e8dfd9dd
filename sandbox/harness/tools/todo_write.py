"""todo_write: the policy's own list of steps."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sandbox.harness.tools.base import Arguments, Output, Todo, Tool, ToolContext


class TodoItem(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    content: str = Field(min_length=1, max_length=500)
    status: Literal["pending", "in_progress", "done"] = "pending"


class TodoWriteArguments(Arguments):
    todos: tuple[TodoItem, ...] = Field(max_length=100, description="The whole list; it replaces the last one.")


class TodoWrite(Tool[TodoWriteArguments]):
    name = "todo_write"
    description = "Keep a list of the steps of this task. Each call replaces the whole list."
    arguments = TodoWriteArguments

    async def run(self, arguments: TodoWriteArguments, context: ToolContext) -> Output:
        self.recall(arguments, context)
        done = sum(todo.status == "done" for todo in context.todos)
        return Output(f"todos: {len(context.todos) - done} pending, {done} done")

    def recall(self, arguments: TodoWriteArguments, context: ToolContext) -> None:
        context.todos[:] = [Todo(item.content, item.status) for item in arguments.todos]
