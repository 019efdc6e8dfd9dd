"""Paths as the policy writes them: relative to the checkout, one spelling for each file."""

from __future__ import annotations

from pathlib import PurePosixPath

from sandbox.backends.base import WORKDIR
from sandbox.harness.errors import ToolFailure
from sandbox.harness.types import ToolErrorKind


def checkout_path(path: str) -> str:
    """`path` normalised and relative to the checkout (`.` for the checkout itself). Raises ToolFailure (refused)."""
    if not path or "\0" in path:
        raise ToolFailure(ToolErrorKind.REFUSED, f"not a path: {path!r}")
    parts: list[str] = []
    for part in PurePosixPath(WORKDIR, path).parts[1:]:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
    inside = PurePosixPath(*parts) if parts else PurePosixPath(".")
    root = PurePosixPath(WORKDIR[1:])
    if not inside.is_relative_to(root):
        raise ToolFailure(ToolErrorKind.REFUSED, f"{path} is outside the checkout; use a path relative to it")
    return str(inside.relative_to(root))
