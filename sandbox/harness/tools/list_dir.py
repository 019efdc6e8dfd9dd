"""list_dir: names in a directory."""

from __future__ import annotations

from pydantic import Field

from sandbox.backends.base import PathError
from sandbox.harness.errors import ToolFailure
from sandbox.harness.ordering import READS_ALL, Access
from sandbox.harness.paths import checkout_path
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.tools.files import kind_of
from sandbox.harness.types import ToolErrorKind


class ListDirArguments(Arguments):
    path: str = Field(default=".", description="Directory, relative to the checkout.")


class ListDir(Tool[ListDirArguments]):
    name = "list_dir"
    description = "List the names in a directory of the checkout, one a line; directories end in `/`."
    arguments = ListDirArguments

    def access(self, arguments: ListDirArguments) -> tuple[Access, ...]:
        checkout_path(arguments.path)
        return READS_ALL

    async def run(self, arguments: ListDirArguments, context: ToolContext) -> Output:
        path = checkout_path(arguments.path)
        try:
            entries = await context.sandbox.list(path)
        except PathError as error:
            kind = await kind_of(context, path)
            if kind is None:
                raise ToolFailure(ToolErrorKind.NOT_FOUND, f"no such directory: {path}") from error
            raise ToolFailure(ToolErrorKind.REFUSED, f"not a directory: {path}") from error
        names = [name + "/" if kind == "dir" else name for name, kind, _ in entries]
        limit = context.profile.list_entries
        if len(names) > limit:
            names = [*names[:limit], f"[... {len(names) - limit} more entries ...]"]
        return Output("\n".join(names))
