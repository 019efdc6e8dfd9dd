"""grep: lines that match a regular expression."""

from __future__ import annotations

from pydantic import Field

from sandbox.backends.base import PathError
from sandbox.harness.errors import ToolFailure
from sandbox.harness.ordering import READS_ALL, Access
from sandbox.harness.paths import checkout_path
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.types import ToolErrorKind


class GrepArguments(Arguments):
    pattern: str = Field(min_length=1, description="Regular expression (Python syntax).")
    path: str = Field(default=".", description="File or directory to search, relative to the checkout.")
    glob: str | None = Field(default=None, description="Only files whose name matches, for example `*.py`.")


class Grep(Tool[GrepArguments]):
    name = "grep"
    description = "Search the checkout for lines that match a regular expression. Matches are `path:line:text`."
    arguments = GrepArguments

    def access(self, arguments: GrepArguments) -> tuple[Access, ...]:
        checkout_path(arguments.path)
        return READS_ALL

    async def run(self, arguments: GrepArguments, context: ToolContext) -> Output:
        path = checkout_path(arguments.path)
        limit = context.profile.grep_matches
        try:
            found = await context.sandbox.search(arguments.pattern, path, glob=arguments.glob, max_matches=limit + 1)
        except PathError as error:
            raise ToolFailure(ToolErrorKind.NOT_FOUND, f"no such file or directory: {path}") from error
        except ValueError as error:
            raise ToolFailure(ToolErrorKind.INVALID_ARGUMENTS, f"bad pattern: {error}") from error
        if not found:
            return Output("no matches")
        width = context.profile.line_chars
        lines = [f"{name}:{number}:{text[:width]}" for name, number, text in found[:limit]]
        if len(found) > limit and context.profile.announce_more_matches:
            lines.append(f"[more than {limit} matches; narrow the search]")
        cut = sum(len(text[width:].encode()) for _, _, text in found[:limit])
        return Output("\n".join(lines), cut_bytes=cut)
