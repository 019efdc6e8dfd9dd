"""write_file: create or replace a whole file."""

from __future__ import annotations

from pydantic import Field

from sandbox.harness.ordering import Access
from sandbox.harness.paths import checkout_path
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.tools.files import write_text


class WriteFileArguments(Arguments):
    path: str = Field(description="File to create or replace, relative to the checkout.")
    content: str = Field(description="The whole new content.")


class WriteFile(Tool[WriteFileArguments]):
    name = "write_file"
    description = "Create a file, or replace its whole content. Missing directories are made."
    arguments = WriteFileArguments

    def access(self, arguments: WriteFileArguments) -> tuple[Access, ...]:
        return (Access(checkout_path(arguments.path), writes=True),)

    async def run(self, arguments: WriteFileArguments, context: ToolContext) -> Output:
        path = checkout_path(arguments.path)
        await write_text(context, path, arguments.content)
        return Output(f"wrote {path}")
