"""Apply changes in the checkout of a clean sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.backends.base import FileChange, PathError, Sandbox


async def apply(sandbox: Sandbox, changes: Sequence[FileChange]) -> list[str]:
    """Make `changes` in the checkout, deletions first; returns `path: reason` for those that cannot be made."""
    refused = []
    for change in sorted(changes, key=lambda c: (c.content is not None, c.path)):
        try:
            if change.content is None:
                await sandbox.delete(change.path)
            else:
                await sandbox.write(change.path, change.content, executable=change.executable)
        except PathError as error:
            refused.append(f"{change.path}: cannot be applied: {error}")
    return refused


async def write_tests(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    """Lay test files over the checkout. Raises PathError where the work left something in their way."""
    for path, content in files.items():
        await sandbox.write(path, content)
