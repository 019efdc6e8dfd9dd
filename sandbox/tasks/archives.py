"""Reading source archives that somebody else made: bounded in bytes and members, never written out by tarfile."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.tasks.errors import PackageError
from sandbox.tasks.spec import check_relative_path

MAX_PACKED_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 256 << 20
"""Of the whole stream: headers, links and what is left out count as well."""
MAX_MEMBERS = 50_000
MAX_FILE_BYTES = 32 << 20
MAX_TOTAL_BYTES = 192 << 20
"""Of the regular files."""


@dataclass(frozen=True, slots=True)
class Member:
    path: str
    """Below the archive's top directory."""
    content: bytes
    executable: bool


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded:
    """A stream that refuses to give more than `left` bytes, whatever a header asks for."""

    def __init__(self, stream: _Readable, left: int, name: str) -> None:
        self._stream, self._left, self._name = stream, left, name

    def read(self, size: int) -> bytes:
        if size > self._left:
            raise PackageError(f"{self._name}: unpacks to more than {MAX_UNPACKED_BYTES} bytes")
        data = self._stream.read(size)
        self._left -= len(data)
        return data


def members(archive: Path) -> Iterator[Member]:
    """Regular files of a `.tar.gz` below its top directory, in order; links and devices are passed over.

    Raises PackageError for what is unsafe, too large or no archive.
    """
    if archive.stat().st_size > MAX_PACKED_BYTES:
        raise PackageError(f"{archive.name} is larger than {MAX_PACKED_BYTES} bytes")
    total = 0
    try:
        with gzip.open(archive) as unpacked:
            bounded = _Bounded(unpacked, MAX_UNPACKED_BYTES, archive.name)
            # A stream: no seeking, so that nothing is read past the bound.
            with tarfile.open(fileobj=bounded, mode="r|") as tar:  # type: ignore[call-overload]
                for count, member in enumerate(tar):
                    if count == MAX_MEMBERS:
                        raise PackageError(f"{archive.name} holds more than {MAX_MEMBERS} members")
                    path = _inner(archive, member)
                    if path is None:
                        continue
                    total += member.size
                    if total > MAX_TOTAL_BYTES:
                        raise PackageError(f"{archive.name}: unpacks to more than {MAX_TOTAL_BYTES} bytes")
                    stream = tar.extractfile(member)
                    assert stream is not None
                    yield Member(path, stream.read(), bool(member.mode & 0o100))
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise PackageError(
            f"{archive.name} is not a readable archive: {error}", remedy="Delete it; it is fetched again"
        ) from error


def _inner(archive: Path, member: tarfile.TarInfo) -> str | None:
    """The path of a regular file below the top directory; None for anything else, and for git's own files."""
    parts = [part for part in member.name.split("/") if part != "."]
    if not member.isreg() or len(parts) < 2 or ".git" in parts:
        return None
    try:
        if parts[0] in ("", "..") or member.size > MAX_FILE_BYTES:
            raise ValueError("outside, or too large")
        return check_relative_path("/".join(parts[1:]))
    except ValueError:
        raise PackageError(f"{archive.name}: unsafe or oversized member {member.name!r}") from None
