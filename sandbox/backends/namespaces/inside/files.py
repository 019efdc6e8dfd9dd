"""File operations of the agent: resolved inside the sandbox, regular files only, bounded.

Links are followed as any program in the sandbox would, with one exception: nothing on procfs is ever read or
written, because the agent's own entries there are readable to nobody but the agent.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time

MAX_ENTRIES = 20_000
FOLLOW_SECONDS = 5.0
"""How long links are followed for one listing: one may take milliseconds, and nothing else is answered meanwhile."""


class Refused(Exception):
    """The path is absent, of the wrong kind, or too large; the message says which."""


class Files:
    def __init__(self, workdir: str) -> None:
        self._workdir = workdir
        self._proc = os.stat("/proc").st_dev

    def serve(self, op: str, header: dict, blob: bytes) -> tuple[dict, bytes]:
        """Answer `read`, `write`, `delete` or `list`. Raises Refused."""
        shown = header["path"]
        path = self.resolve(shown)
        try:
            if op == "read":
                return {}, self._read(path, shown, header["max_bytes"])
            if op == "write":
                self._write(path, shown, blob, header["executable"])
                return {}, b""
            if op == "delete":
                self._delete(path, shown)
                return {}, b""
            if op == "list":
                return {}, json.dumps(self._list(path, shown)).encode()
        except OSError as error:
            raise Refused(_message(error, shown)) from None
        except RecursionError:  # making a thousand directories in each other
            raise Refused(f"nested too deeply: {shown}") from None
        raise Refused(f"unknown operation {op}")

    def resolve(self, path: str) -> str:
        if "\0" in path or not path:
            raise Refused("the path is empty or has a NUL character")
        return os.path.join(self._workdir, path)

    def _check(self, fd: int, shown: str) -> os.stat_result:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise Refused(f"is a directory: {shown}")
        if not stat.S_ISREG(found.st_mode) or found.st_dev == self._proc:
            raise Refused(f"not a regular file: {shown}")
        return found

    def _read(self, path: str, shown: str, max_bytes: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            found = self._check(fd, shown)
            if found.st_size > max_bytes:
                raise Refused(f"too large ({found.st_size} bytes, limit {max_bytes}): {shown}")
            parts, left = [], max_bytes + 1
            while left > 0 and (part := os.read(fd, min(left, 1 << 20))):
                parts.append(part)
                left -= len(part)
            if left <= 0:
                raise Refused(f"too large (grows, limit {max_bytes} bytes): {shown}")
            return b"".join(parts)
        finally:
            os.close(fd)

    def _write(self, path: str, shown: str, content: bytes, executable: bool) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
        try:
            found = self._check(fd, shown)
            if content and len(content) > found.st_size:
                self._reserve(fd, len(content), found.st_size)
            done = 0
            while done < len(content):
                done += os.write(fd, content[done:] if done else content)
            os.ftruncate(fd, len(content))
            if executable:
                os.fchmod(fd, stat.S_IMODE(found.st_mode) | 0o111)
        finally:
            os.close(fd)

    def _reserve(self, fd: int, wanted: int, before: int) -> None:
        """Take the space first, so that a full disk leaves the old content as it was."""
        try:
            os.posix_fallocate(fd, 0, wanted)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return
            os.ftruncate(fd, before)
            raise

    def _delete(self, path: str, shown: str) -> None:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            raise Refused(f"is a directory: {shown}")
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise Refused(f"not a regular file: {shown}")
        os.unlink(path)

    def _list(self, path: str, shown: str) -> list[tuple[str, str, int]]:
        entries: list[tuple[str, str, int]] = []
        end = time.monotonic() + FOLLOW_SECONDS
        with os.scandir(path) as found:
            for entry in found:
                if len(entries) >= MAX_ENTRIES:
                    raise Refused(f"more than {MAX_ENTRIES} entries: {shown}")
                entries.append((entry.name.encode("utf-8", "backslashreplace").decode(), *_describe(entry, end)))
        return sorted(entries)


def _describe(entry: os.DirEntry, end: float) -> tuple[str, int]:
    try:
        found = entry.stat(follow_symlinks=time.monotonic() < end)
    except OSError:  # a link to nowhere
        return "other", 0
    if stat.S_ISDIR(found.st_mode):
        return "dir", 0
    return ("file", found.st_size) if stat.S_ISREG(found.st_mode) else ("other", 0)


def _message(error: OSError, shown: str) -> str:
    known = {
        errno.ENOENT: "no such file",
        errno.EISDIR: "is a directory",
        errno.ENOTDIR: "not a directory",
        errno.ENXIO: "not a regular file",
    }
    return f"{known.get(error.errno or 0, error.strerror)}: {shown}"
