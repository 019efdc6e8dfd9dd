"""The writable layer of one sandbox and what lies under it, by descriptors: its patch, and copies of it."""

from __future__ import annotations

import hashlib
import json
import os
import stat

from sandbox.backends.namespaces import layers
from sandbox.backends.namespaces.inside import protocol


class Storage:
    def __init__(self, upper: int, lower: list[int], snapshots: int) -> None:
        """`lower` are the layers, uppermost first; the first `snapshots` of them count as changes."""
        self._upper, self._lower, self._snapshots = upper, lower, snapshots

    def diff(self, folder: str) -> tuple[dict, bytes]:
        """What differs below `folder`, as an answer to the host: an index of paths and sizes, then the contents."""
        full: layers.Stack = [self._upper, *self._lower]
        # each difference opens its own descriptors, so the roots are lent
        inner, leaf = layers.descend(full, folder)
        old, _ = layers.descend(self._lower[self._snapshots :], folder)
        difference = layers.Difference(1 + self._snapshots)
        if leaf is not None:
            difference.skipped.append((".", "the checkout was replaced by something that is no directory"))
        difference.walk(inner, old)
        layers.close_stack(inner)
        layers.close_stack(old)
        entries, parts = [], []
        for path, content, executable, before in difference.changes:
            sizes = [None if text is None else len(text) for text in (content, before)]
            entries.append([path, *sizes, executable])
            parts += [text for text in (content, before) if text]
        index = json.dumps({"changes": entries, "skipped": difference.skipped}).encode()
        return {"index": len(index)}, index + b"".join(parts)

    def copy(self, target: int, budget: layers.Budget | None = None) -> None:
        """Lay all that changed into the empty directory `target`, as one layer. Raises layers.TooLarge."""
        for source in (*reversed(self._lower[: self._snapshots]), self._upper):
            layers.apply(source, target, budget)
        os.fchmod(target, 0o755)

    def stamp(self) -> str:
        """A hash over the names, kinds, sizes and times in the writable layer; no file is read. Raises layers.TooLarge."""
        found = hashlib.sha256()
        _stamp(self._upper, found, 0)
        return found.hexdigest()


def failure(op: object, error: Exception) -> dict:
    """What the host is told of a request that raised. `large`: the tree is the reason, which is the policy's; any error but
    those of the machine comes of what the tree holds."""
    if isinstance(error, layers.TooLarge):
        return {"error": str(error), "kind": "large"}
    if isinstance(error, OSError | MemoryError):
        return {"error": f"{op}: {error}"}
    return {"error": f"{op}: {type(error).__name__}: {error}"[: protocol.MAX_TEXT_CHARS], "kind": "large"}


def _stamp(folder: int, found: hashlib._Hash, depth: int) -> None:
    if depth > layers.MAX_COPY_DEPTH:
        raise layers.TooLarge(f"directories nested more than {layers.MAX_COPY_DEPTH} deep")
    for name in sorted(os.listdir(folder)):
        try:
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        times = (seen.st_mtime_ns, seen.st_ctime_ns)
        found.update(repr((depth, name, seen.st_ino, seen.st_mode, seen.st_size, times)).encode("utf-8", "replace"))
        if stat.S_ISDIR(seen.st_mode):
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                _stamp(inner, found, depth + 1)
            finally:
                os.close(inner)
