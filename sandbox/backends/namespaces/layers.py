"""Reading overlay layers from outside: what changed, and copies of it. Never runs anything of the sandbox.

A *stack* is one directory seen through several layers: a descriptor per layer, uppermost first, None where that
layer has nothing to say. Names are resolved one component at a time and never through links, because processes
in the sandbox may move things about meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat

MAX_FILE_BYTES = 2 << 20
MAX_TOTAL_BYTES = 24 << 20
MAX_CHANGES = 4000
MAX_PATHS_BYTES = 2 << 20
"""Of all changed paths together, and again of all that are skipped."""
MAX_VISITS = 50_000
"""Entries that are looked at, also those that make no patch: folders, links. Their number bounds the time."""
MAX_DEPTH = 48
MAX_COPY_DEPTH = 100
"""Two descriptors are open for each directory on the way."""
OPAQUE = "user.overlay.opaque"
WORK_PRODUCTS = {
    ".git": "version control data",
    "__pycache__": "compiled files",
    ".pytest_cache": "a cache",
    ".mypy_cache": "a cache",
    ".ruff_cache": "a cache",
}
"""Names that never belong to a patch, and why they are skipped."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Stack = list  # of int | None


def is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(fd: int) -> bool:
    try:
        return os.getxattr(fd, OPAQUE) == b"y"
    except OSError:  # no such attribute, or a file system without attributes
        return False


def close_stack(stack: Stack) -> None:
    for fd in stack:
        if fd is not None:
            os.close(fd)


def descend(stack: Stack, name: str) -> tuple[Stack, tuple[int, os.stat_result] | None]:
    """What `name` is in the merged view: a stack (all None unless a directory), and a non-directory if it is one."""
    below: Stack = [None] * len(stack)
    for index, fd in enumerate(stack):
        if fd is None:
            continue
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if is_whiteout(found):
                break
            if not stat.S_ISDIR(found.st_mode):
                leaf = None if any(entry is not None for entry in below) else (fd, found)
                return below, leaf
            below[index] = os.open(name, _FOLDER, dir_fd=fd)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if is_opaque(below[index]):
            break
    return below, None


def read_file(fd: int, name: str, limit: int = MAX_FILE_BYTES) -> bytes | None:
    """Content of a regular file, None when it is larger than `limit` or no regular file any more."""
    try:
        file = os.open(name, _FILE, dir_fd=fd)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return None
        parts, left = [], limit + 1
        while left > 0 and (part := os.read(file, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts) if left > 0 else None
    finally:
        os.close(file)


def odd_name(name: str) -> str | None:
    """Why a file name cannot be part of a patch, or None."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "name is not UTF-8"
    if any(ord(char) < 32 or ord(char) == 127 for char in name) or "\\" in name:
        return "name has control characters or backslashes"
    return None


class Difference:
    """Compares `changed + pristine` with `pristine`, visiting only what the changed layers touch.

    `changes` holds (path, content or None, executable, before or None), `skipped` (path, reason).
    """

    def __init__(self, changed: int) -> None:
        self._changed = changed
        self._bytes = self._paths_bytes = self._skipped_bytes = self._visits = 0
        self._full = False
        self.changes: list[tuple[str, bytes | None, bool, bytes | None]] = []
        self.skipped: list[tuple[str, str]] = []

    def walk(self, full: Stack, old: Stack, path: str = "", depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            return self._skip(path, "nested too deeply")
        for name in sorted(self._names(full, old)):
            if self._full:
                return
            self._visit(full, old, name, f"{path}/{name}" if path else name, depth)

    def _names(self, full: Stack, old: Stack) -> set[str]:
        top, hidden = full[: self._changed], full[self._changed :]
        names: set[str] = set()
        for fd in top:
            names.update(_listed(fd))
        if any(before is not None and now is None for now, before in zip(hidden, old, strict=True)):
            for fd in old:
                names.update(_listed(fd))
        return names

    def _visit(self, full: Stack, old: Stack, name: str, path: str, depth: int) -> None:
        self._visits += 1
        if self._visits > MAX_VISITS:
            return self._stop(path, f"more than {MAX_VISITS} files, folders and links; the rest is left out")
        new_stack, new_leaf = descend(full, name)
        old_stack, old_leaf = descend(old, name)
        try:
            folders = any(fd is not None for fd in (*new_stack, *old_stack))
            if reason := WORK_PRODUCTS.get(name) or odd_name(name):
                return self._skip(path, reason)
            if new_leaf or old_leaf:
                self._file(name, path, new_leaf, old_leaf)
            if folders and self._touched(new_stack, old_stack):
                self.walk(new_stack, old_stack, path, depth + 1)
        finally:
            close_stack(new_stack)
            close_stack(old_stack)

    def _touched(self, new: Stack, old: Stack) -> bool:
        if any(fd is not None for fd in new[: self._changed]):
            return True
        return any((now is None) != (before is None) for now, before in zip(new[self._changed :], old, strict=True))

    def _file(self, name: str, path: str, new: tuple | None, old: tuple | None) -> None:
        before = None
        if old and stat.S_ISREG(old[1].st_mode):
            before = read_file(old[0], name)
            if before is None:
                return self._skip(path, "the original is too large")
        if new and stat.S_ISREG(new[1].st_mode):
            content = read_file(new[0], name)
            if content is None:
                return self._skip(path, f"larger than {MAX_FILE_BYTES} bytes")
            executable = bool(new[1].st_mode & 0o100)
            if content == before and old and executable == bool(old[1].st_mode & 0o100):
                return
            return self._add(path, content, executable, before)
        if new:
            self._skip(path, _kind(new[1].st_mode))
        elif old and before is None:
            self._skip(path, f"removed {_kind(old[1].st_mode)}")
        if before is not None:
            self._add(path, None, False, before)

    def _add(self, path: str, content: bytes | None, executable: bool, before: bytes | None) -> None:
        self._bytes += len(content or b"") + len(before or b"")
        self._paths_bytes += len(path.encode())
        if len(self.changes) >= MAX_CHANGES or self._bytes > MAX_TOTAL_BYTES or self._paths_bytes > MAX_PATHS_BYTES:
            limits = f"{MAX_CHANGES} files, {MAX_TOTAL_BYTES} bytes or {MAX_PATHS_BYTES} bytes of paths"
            return self._stop(path, f"more than {limits} changed; the rest is left out")
        self.changes.append((path, content, executable, before))

    def _stop(self, path: str, reason: str) -> None:
        """Leave out `path` and what comes after it."""
        self._full = True
        self.skipped.append((path.encode("utf-8", "backslashreplace").decode(), reason))

    def _skip(self, path: str, reason: str) -> None:
        shown = path.encode("utf-8", "backslashreplace")
        self._skipped_bytes += len(shown)
        if len(self.skipped) < MAX_CHANGES and self._skipped_bytes <= MAX_PATHS_BYTES:
            self.skipped.append((shown.decode(), reason))


def _listed(fd: int | None) -> list[str]:
    try:
        return [] if fd is None else os.listdir(fd)
    except FileNotFoundError:  # removed since it was opened
        return []


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "symbolic link"
    return "not a regular file"


class TooLarge(Exception):
    """A copy would hold more than it may."""


class Budget:
    """What copies may hold yet, by the size that files claim: a hole costs as much as data."""

    def __init__(self, most_bytes: int, most_entries: int) -> None:
        self._bytes, self._entries = most_bytes, most_entries
        self._limits = f"{most_bytes} bytes in {most_entries} files and directories"

    def take(self, size: int) -> None:
        """Raises TooLarge."""
        self._bytes, self._entries = self._bytes - size, self._entries - 1
        if self._bytes < 0 or self._entries < 0:
            raise TooLarge(f"more than {self._limits}")


def apply(source: int, target: int, budget: Budget | None = None, depth: int = 0) -> None:
    """Lay the overlay layer `source` over the overlay layer `target` (directory descriptors), as one layer.

    Raises TooLarge when `budget` is used up.
    """
    if depth > MAX_COPY_DEPTH:
        raise TooLarge(f"directories nested more than {MAX_COPY_DEPTH} deep")
    if is_opaque(source):
        _empty(target)
        os.setxattr(target, OPAQUE, b"y")
    for name in os.listdir(source):
        try:
            found = os.stat(name, dir_fd=source, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if budget:
            budget.take(found.st_size if stat.S_ISREG(found.st_mode) else 0)
        if stat.S_ISDIR(found.st_mode):
            _apply_folder(source, target, name, found, budget, depth)
            continue
        _remove(target, name)
        if is_whiteout(found):
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=target, follow_symlinks=False)
        elif stat.S_ISREG(found.st_mode):
            _copy(source, target, name, found.st_size)


def _apply_folder(
    source: int, target: int, name: str, found: os.stat_result, budget: Budget | None, depth: int
) -> None:
    try:
        current = os.stat(name, dir_fd=target, follow_symlinks=False)
        if not stat.S_ISDIR(current.st_mode):
            os.unlink(name, dir_fd=target)
            raise FileNotFoundError
    except FileNotFoundError:
        os.mkdir(name, 0o700, dir_fd=target)
    inner_source = os.open(name, _FOLDER, dir_fd=source)
    inner_target = os.open(name, _FOLDER, dir_fd=target)
    try:
        apply(inner_source, inner_target, budget, depth + 1)
        os.fchmod(inner_target, stat.S_IMODE(found.st_mode))
        os.utime(inner_target, ns=(found.st_atime_ns, found.st_mtime_ns))
    finally:
        os.close(inner_source)
        os.close(inner_target)


def _copy(source: int, target: int, name: str, most: int) -> None:
    try:
        reader = os.open(name, _FILE, dir_fd=source)
    except FileNotFoundError:
        return
    try:
        found = os.fstat(reader)
        if not stat.S_ISREG(found.st_mode):
            return
        writer = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=target
        )
        try:
            left = min(found.st_size, most)
            while left > 0 and (sent := os.sendfile(writer, reader, None, min(left, 1 << 24))):
                left -= sent
            os.fchmod(writer, stat.S_IMODE(found.st_mode))
            os.utime(writer, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def remove_tree(path: str) -> None:
    """Remove a file or a directory with all below it, whatever the modes say; nothing happens when it is absent."""
    parent, name = os.path.split(path)
    folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove(folder, name)
    finally:
        os.close(folder)


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        inner = _open_up(folder, name)
        try:
            os.fchmod(inner, 0o700)
            _empty(inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


def _open_up(folder: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:  # ours, but closed to us
        os.chmod(name, 0o700, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def _empty(folder: int) -> None:
    for name in os.listdir(folder):
        _remove(folder, name)
    with contextlib.suppress(OSError):
        os.removexattr(folder, OPAQUE)
