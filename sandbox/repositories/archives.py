"""Read untrusted source archives, with limits on bytes and members; no library ever extracts them to disk."""

from __future__ import annotations

import gzip
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.errors import PackageError
from sandbox.repositories.files import check_relative_path

MAX_PACKED_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 512 << 20
"""Size of the whole stream, including headers, links and skipped members."""
MAX_MEMBERS = 50_000
MAX_FILE_BYTES = 32 << 20
MAX_TOTAL_BYTES = 192 << 20
"""Total size of the regular files."""
REMEDY = "Pack a plain folder of regular files again"


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
    """Regular files of a `.tar.gz` or `.zip` below its top directory, in order; links and devices are passed over.

    Raises PackageError for what is unsafe, too large or no archive.
    """
    for member in _regular(archive, strict=False):
        _, _, inner = member.path.partition("/")
        if inner:
            yield Member(inner, member.content, member.executable)


def uploaded(archive: Path) -> list[Member]:
    """Regular files of an archive that a person made; a single top directory is taken off.

    Links and devices are refused: what they stand for is missing here. Raises PackageError.
    """
    found = list(_regular(archive, strict=True))
    tops = {member.path.partition("/")[0] for member in found}
    if len(tops) == 1 and all("/" in member.path for member in found):
        return [Member(m.path.partition("/")[2], m.content, m.executable) for m in found]
    return found


def _regular(archive: Path, *, strict: bool) -> Iterator[Member]:
    if archive.stat().st_size > MAX_PACKED_BYTES:
        raise PackageError(f"{archive.name} is larger than {MAX_PACKED_BYTES} bytes")
    try:
        yield from _zip(archive, strict) if zipfile.is_zipfile(archive) else _tar(archive, strict)
    except (
        tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, zlib.error, ValueError,
        OverflowError, IndexError, struct.error,
    ) as error:  # fmt: skip
        raise PackageError(
            f"{archive.name} is not a readable archive: {error}", remedy="Make or fetch it again"
        ) from error


def _tar(archive: Path, strict: bool) -> Iterator[Member]:
    total = 0
    with gzip.open(archive) as unpacked:
        bounded = _Bounded(unpacked, MAX_UNPACKED_BYTES, archive.name)
        # A stream: no seeking, so that nothing is read past the bound.
        with tarfile.open(fileobj=bounded, mode="r|") as tar:  # type: ignore[call-overload]
            for count, member in enumerate(tar):
                _count(archive, count)
                path = _plain(archive, member.name, member.size if member.isreg() else 0, strict or member.isreg())
                if not member.isreg():
                    if strict and not member.isdir():
                        raise _refused(archive, member.name, "a link or device")
                    continue
                if path is None:
                    continue
                total = _sum(archive, total + member.size)
                stream = tar.extractfile(member)
                assert stream is not None
                yield Member(path, stream.read(), bool(member.mode & 0o100))


def _zip(archive: Path, strict: bool) -> Iterator[Member]:
    total = 0
    with zipfile.ZipFile(archive) as packed:
        for count, info in enumerate(packed.infolist()):
            _count(archive, count)
            mode = info.external_attr >> 16
            if info.flag_bits & 1:
                raise _refused(archive, info.filename, "an encrypted member")
            plain = not info.is_dir() and (not stat.S_IFMT(mode) or stat.S_ISREG(mode))
            path = _plain(archive, info.filename.rstrip("/"), info.file_size, True)
            if not plain:
                if strict and not info.is_dir():
                    raise _refused(archive, info.filename, "a link or device")
                continue
            if path is None:
                continue
            total = _sum(archive, total + info.file_size)
            with packed.open(info) as stream:
                content = stream.read(MAX_FILE_BYTES + 1)  # a header may say less than there is
            if len(content) != info.file_size:
                raise _refused(archive, info.filename, "a member of another size than its header says")
            yield Member(path, content, bool(mode & 0o100))


def _count(archive: Path, count: int) -> None:
    if count == MAX_MEMBERS:
        raise PackageError(f"{archive.name} holds more than {MAX_MEMBERS} members")


def _sum(archive: Path, total: int) -> int:
    if total > MAX_TOTAL_BYTES:
        raise PackageError(f"{archive.name}: unpacks to more than {MAX_TOTAL_BYTES} bytes")
    return total


def _refused(archive: Path, name: str, what: str) -> PackageError:
    return PackageError(f"{archive.name}: {what}: {name!r}", remedy=REMEDY)


def _plain(archive: Path, name: str, size: int, check: bool) -> str | None:
    """The normal path of a member; None for git's own files (and for anything unsafe that is not looked at)."""
    parts = [part for part in name.split("/") if part != "."]
    if ".git" in parts or not parts:
        return None
    try:
        if any("\udc80" <= char <= "\udcff" for char in name):
            raise _refused(archive, name, "a name that is not UTF-8")
        if size > MAX_FILE_BYTES or parts[0] in ("", ".."):
            raise ValueError("outside, or too large")
        return check_relative_path("/".join(parts))
    except ValueError:
        if not check:
            return None
        raise PackageError(f"{archive.name}: unsafe or oversized member {name!r}", remedy=REMEDY) from None
