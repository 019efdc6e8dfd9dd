"""delete_file: remove one file."""

from __future__ import annotations

from pydantic import Field

from sandbox.backends.base import PathError
from sandbox.harness.ordering import Access
from sandbox.harness.paths import checkout_path
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.tools.files import explain


class DeleteFileArguments(Arguments):
    path: str = Field(description="File to delete, relative to the checkout.")


class DeleteFile(Tool[DeleteFileArguments]):
    name = "delete_file"
    description = "Delete one file of the checkout."
    arguments = DeleteFileArguments

    def access(self, arguments: DeleteFileArguments) -> tuple[Access, ...]:
        return (Access(checkout_path(arguments.path), writes=True),)

    async def run(self, arguments: DeleteFileArguments, context: ToolContext) -> Output:
        path = checkout_path(arguments.path)
        try:
            await context.sandbox.delete(path)
        except PathError as error:
            raise await explain(context, path, error) from error
        return Output(f"deleted {path}")
