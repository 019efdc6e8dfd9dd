"""edit_file: replace an exact piece of text."""

from __future__ import annotations

from pydantic import Field

from sandbox.harness.errors import ToolFailure
from sandbox.harness.ordering import Access
from sandbox.harness.paths import checkout_path
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.tools.files import MAX_READ_BYTES, read_text, write_text
from sandbox.harness.types import ToolErrorKind


class EditFileArguments(Arguments):
    path: str = Field(description="File to edit, relative to the checkout.")
    old_string: str = Field(min_length=1, description="Exact text to replace, with its white space.")
    new_string: str = Field(description="Text to put in its place.")
    replace_all: bool = Field(default=False, description="Replace every occurrence; else the text must occur once.")


class EditFile(Tool[EditFileArguments]):
    name = "edit_file"
    description = (
        "Replace an exact piece of text in a file. The text must occur exactly once, "
        "unless replace_all is true: give enough context to make it unique."
    )
    arguments = EditFileArguments

    def access(self, arguments: EditFileArguments) -> tuple[Access, ...]:
        return (Access(checkout_path(arguments.path), writes=True),)

    async def run(self, arguments: EditFileArguments, context: ToolContext) -> Output:
        path = checkout_path(arguments.path)
        if arguments.old_string == arguments.new_string:
            raise ToolFailure(ToolErrorKind.INVALID_ARGUMENTS, "old_string and new_string are equal")
        text = await read_text(context, path)
        found = text.count(arguments.old_string)
        if found == 0:
            raise ToolFailure(ToolErrorKind.NOT_FOUND, f"old_string not found in {path}")
        if found > 1 and not arguments.replace_all:
            raise ToolFailure(ToolErrorKind.CONFLICT, f"old_string occurs {found} times in {path}")
        old, new = (len(part.encode("utf-8", "surrogatepass")) for part in (arguments.old_string, arguments.new_string))
        size = len(text.encode()) + found * (new - old)
        if size > MAX_READ_BYTES:  # before the text is made: a million replacements of a letter fill any memory
            raise ToolFailure(ToolErrorKind.REFUSED, f"too large: {size} bytes, at most {MAX_READ_BYTES}")
        position = text.index(arguments.old_string)
        await write_text(context, path, text.replace(arguments.old_string, arguments.new_string))
        return Output(f"edited {path}:{text.count(chr(10), 0, position) + 1}")
