"""read_file: numbered lines of a text file."""

from __future__ import annotations

from pydantic import Field

from sandbox.harness.errors import ToolFailure
from sandbox.harness.ordering import Access
from sandbox.harness.paths import checkout_path
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.tools.files import read_text
from sandbox.harness.types import ToolErrorKind


class ReadFileArguments(Arguments):
    path: str = Field(description="File to read, relative to the checkout.")
    offset: int = Field(default=1, ge=1, description="First line to show, counted from 1.")
    limit: int | None = Field(default=None, ge=1, description="Most lines to show; all when absent.")


class ReadFile(Tool[ReadFileArguments]):
    name = "read_file"
    description = (
        "Read a text file of the checkout. Each line is shown as `N|text` with its line number. "
        "Use offset and limit for a part of a long file."
    )
    arguments = ReadFileArguments

    def access(self, arguments: ReadFileArguments) -> tuple[Access, ...]:
        return (Access(checkout_path(arguments.path), writes=False),)

    async def run(self, arguments: ReadFileArguments, context: ToolContext) -> Output:
        path = checkout_path(arguments.path)
        lines = (await read_text(context, path)).split("\n")
        if lines[-1] == "":
            lines.pop()
        start = arguments.offset - 1
        if start and start >= len(lines):
            message = f"{path} has {len(lines)} lines; offset {arguments.offset} is past the end"
            raise ToolFailure(ToolErrorKind.INVALID_ARGUMENTS, message)
        end = None if arguments.limit is None else start + arguments.limit
        shown = lines[start:end]
        return Output("\n".join(f"{number}|{text}" for number, text in enumerate(shown, arguments.offset)))
