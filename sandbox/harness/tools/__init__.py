"""The registry: every tool of the product, by name, in the order in which schemas list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.harness.tools.base import Tool
from sandbox.harness.tools.delete_file import DeleteFile
from sandbox.harness.tools.edit_file import EditFile
from sandbox.harness.tools.finish import Finish
from sandbox.harness.tools.grep import Grep
from sandbox.harness.tools.list_dir import ListDir
from sandbox.harness.tools.read_file import ReadFile
from sandbox.harness.tools.read_lints import ReadLints
from sandbox.harness.tools.run_terminal_cmd import RunTerminalCmd
from sandbox.harness.tools.todo_write import TodoWrite
from sandbox.harness.tools.write_file import WriteFile

REGISTRY: dict[str, Tool[Any]] = {
    tool.name: tool
    for tool in (
        ReadFile(),
        ListDir(),
        EditFile(),
        WriteFile(),
        DeleteFile(),
        Grep(),
        ReadLints(),
        RunTerminalCmd(),
        TodoWrite(),
        Finish(),
    )
}


def select(names: Sequence[str]) -> dict[str, Tool[Any]]:
    """The named tools in that order. Raises ValueError for a name that is not registered."""
    unknown = [name for name in names if name not in REGISTRY]
    if unknown:
        raise ValueError(f"unknown tools {unknown}; registered are {', '.join(REGISTRY)}")
    return {name: REGISTRY[name] for name in names}
