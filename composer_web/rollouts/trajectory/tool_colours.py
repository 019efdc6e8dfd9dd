"""Colour of a tool in strips, lists and transcripts: the same in every rollout.

Tools of one purpose share a colour, so that a strip reads as phases: reading, searching, editing, running. A tool that the
harness does not have gets a colour from its name.
"""

from __future__ import annotations

import zlib

FAMILIES = {
    1: ("read_file", "list_dir"),
    2: ("edit_file", "write_file", "delete_file"),
    3: ("grep", "codebase_search"),
    4: ("run_terminal_cmd",),
    5: ("read_lints",),
    6: ("todo_write", "finish"),
}
"""Class `tool-N` (static/css/trajectory.css) → tools."""
_KNOWN = {name: number for number, names in FAMILIES.items() for name in names}


def colour_of(name: str) -> int:
    """Number of the class `tool-N`."""
    return _KNOWN.get(name) or 1 + zlib.crc32(name.encode()) % len(FAMILIES)
