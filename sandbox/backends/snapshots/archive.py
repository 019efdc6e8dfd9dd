"""A snapshot as one stream of bytes: what it is named by, kept as and sent as.

The stream is zstd over records, `u32 length, JSON, content`: the shell state, the entries of the tree (a directory
before what it holds), the end. The digest is the SHA-256 of the uncompressed records. Whoever unpacks trusts nothing
in it: names are checked, sizes are bounded, and nothing counts before the digest is proved.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Protocol
from urllib.parse import quote_from_bytes, unquote_to_bytes

import zstandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.backends.base import SnapshotDamaged, SnapshotError
from sandbox.backends.namespaces.layers import MAX_COPY_DEPTH, OPAQUE, is_opaque, is_whiteout

LEVEL = 1
LENGTH = struct.Struct("<I")
MAX_RECORD_BYTES = 1 << 20
MAX_STATE_BYTES = 8 << 20
MAX_DEPTH = MAX_COPY_DEPTH + 1
MAX_MTIME = 1 << 62
"""Nanoseconds before and after 1970; files of other times are kept with the nearest of these."""
CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Record(BaseModel):
    """One thing in the stream, followed by `size` bytes of content."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal["state", "folder", "file", "link", "gone", "end"]
    name: str = Field(default="", max_length=3 * 255)
    """Percent-encoded bytes of the last component of the path."""
    depth: int = Field(default=0, ge=0, le=MAX_DEPTH)
    """Directories above it; it lies in the last directory that came at `depth - 1`."""
    size: int = Field(default=0, ge=0)
    mode: int = Field(default=0, ge=0, le=0o1777)
    mtime: int = Field(default=0, ge=-MAX_MTIME, le=MAX_MTIME)
    """Nanoseconds since 1970."""
    target: str = ""
    """Where a link leads, percent-encoded bytes."""
    opaque: bool = False
    """The directory replaces what the layers below have at its place."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def pack(tree: Path, state: bytes, file: BinaryIO) -> str:
    """Write the snapshot of the layer `tree` and the shell state to `file`; its digest. Raises SnapshotError."""
    digest = hashlib.sha256()
    with zstandard.ZstdCompressor(level=LEVEL).stream_writer(file, closefd=False) as writer:
        sink = _Sink(writer, digest)
        sink.record(Record(kind="state", size=len(state)))
        sink.write(state)
        root = os.open(tree, _FOLDER)
        try:
            _pack_folder(root, 0, sink)
        finally:
            os.close(root)
        sink.record(Record(kind="end"))
    return digest.hexdigest()


class _Sink:
    def __init__(self, writer: BinaryIO, digest: _Hash) -> None:
        self._writer, self._digest = writer, digest

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._writer.write(data)

    def record(self, record: Record) -> None:
        text = record.model_dump_json(exclude_defaults=True).encode()
        self.write(LENGTH.pack(len(text)) + text)


def _pack_folder(folder: int, depth: int, sink: _Sink) -> None:
    if depth > MAX_DEPTH:
        raise SnapshotError(f"directories nested more than {MAX_DEPTH} deep cannot be kept")
    for name in sorted(os.listdir(folder)):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        shown = quote_from_bytes(os.fsencode(name))
        mode, mtime = found.st_mode & 0o1777, max(-MAX_MTIME, min(found.st_mtime_ns, MAX_MTIME))
        if is_whiteout(found):
            sink.record(Record(kind="gone", name=shown, depth=depth))
        elif stat.S_ISLNK(found.st_mode):
            target = quote_from_bytes(os.fsencode(os.readlink(name, dir_fd=folder)))
            sink.record(Record(kind="link", name=shown, depth=depth, target=target, mtime=mtime))
        elif stat.S_ISDIR(found.st_mode):
            with _opened(folder, name, _FOLDER, found.st_mode) as inner:
                opaque = is_opaque(inner)
                sink.record(Record(kind="folder", name=shown, depth=depth, mode=mode, mtime=mtime, opaque=opaque))
                _pack_folder(inner, depth + 1, sink)
        elif stat.S_ISREG(found.st_mode):
            record = Record(kind="file", name=shown, depth=depth, size=found.st_size, mode=mode, mtime=mtime)
            with _opened(folder, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, found.st_mode) as content:
                _pack_file(content, record, sink)


def _pack_file(content: int, record: Record, sink: _Sink) -> None:
    sink.record(record)
    left = record.size
    while left:
        data = os.read(content, min(left, CHUNK))
        if not data:
            raise SnapshotError("a file of the snapshot became shorter while it was read")
        sink.write(data)
        left -= len(data)


@contextlib.contextmanager
def _opened(folder: int, name: str, flags: int, mode: int) -> Iterator[int]:
    """A descriptor of an entry of ours; one whose mode shuts us out (as it does an ordinary user) is open meanwhile."""
    closed = False
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        closed = True
        fd = os.open(name, flags, dir_fd=folder)
    try:
        yield fd
    finally:
        if closed:
            os.fchmod(fd, stat.S_IMODE(mode))
        os.close(fd)


def unpack(
    file: BinaryIO, digest: str, into: Path, *, owner: tuple[int, int] | None, most_bytes: int, most_entries: int
) -> bytes:
    """Make the tree of the stream `file` below the empty directory `into`, owned by `owner`; the shell state.

    Raises SnapshotDamaged when it is not the stream of that digest, SnapshotError when this file system cannot hold
    it. What lies in `into` then is worthless.
    """
    source = _Source(file)
    try:
        state = _state(source)
        _Tree(source, into, owner).build(most_bytes, most_entries)
        if source.read(1):
            raise _Bad("bytes after the end")
    except (_Bad, ValidationError, zstandard.ZstdError) as error:
        raise SnapshotDamaged(f"snapshot {digest}: {error}") from None
    except OSError as error:
        raise SnapshotError(f"snapshot {digest} cannot be unpacked in {into}: {error.strerror}") from error
    if source.digest.hexdigest() != digest:
        raise SnapshotDamaged(f"snapshot {digest}: the content has the digest {source.digest.hexdigest()}")
    return state


class _Bad(Exception):
    """Not a stream that `pack` writes."""


class _Source:
    def __init__(self, file: BinaryIO) -> None:
        self._reader = zstandard.ZstdDecompressor().stream_reader(file, closefd=False)
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        data = b""
        while len(data) < size and (part := self._reader.read(size - len(data))):
            data += part
        self.digest.update(data)
        return data

    def exactly(self, size: int) -> bytes:
        data = self.read(size)
        if len(data) != size:
            raise _Bad("it ends early")
        return data

    def record(self) -> Record:
        (length,) = LENGTH.unpack(self.exactly(LENGTH.size))
        if length > MAX_RECORD_BYTES:
            raise _Bad(f"a record of {length} bytes")
        return Record.model_validate_json(self.exactly(length))


def _state(source: _Source) -> bytes:
    record = source.record()
    if record.kind != "state" or record.size > MAX_STATE_BYTES:
        raise _Bad("it does not begin with a shell state")
    return source.exactly(record.size)


class _Tree:
    """Builds directories from records; the open ones are a stack, so no path is ever resolved."""

    def __init__(self, source: _Source, root: Path, owner: tuple[int, int] | None) -> None:
        self._source, self._root, self._owner = source, root, owner
        self._open: list[tuple[int, Record]] = []

    def build(self, most_bytes: int, most_entries: int) -> None:
        self._open.append((os.open(self._root, _FOLDER), Record(kind="folder", mode=0o755)))
        try:
            while (record := self._source.record()).kind != "end":
                most_bytes, most_entries = most_bytes - record.size, most_entries - 1
                if most_bytes < 0 or most_entries < 0:
                    raise _Bad("it holds more than a snapshot may")
                if record.depth >= len(self._open):
                    raise _Bad("an entry without its directory")
                while len(self._open) > record.depth + 1:
                    self._leave()
                self._make(self._open[-1][0], _name(record.name), record)
            while self._open:
                self._leave(mtime=len(self._open) > 1)
        finally:
            for fd, _ in self._open:
                os.close(fd)

    def _leave(self, *, mtime: bool = True) -> None:
        fd, record = self._open.pop()
        try:
            self._finish(fd, record, mtime=mtime)
        finally:
            os.close(fd)

    def _finish(self, fd: int, record: Record, *, mtime: bool = True) -> None:
        if self._owner:
            os.fchown(fd, *self._owner)
        os.fchmod(fd, record.mode)
        if mtime:
            os.utime(fd, ns=(record.mtime, record.mtime))

    def _make(self, folder: int, name: bytes, record: Record) -> None:
        if record.kind != "file" and record.size:
            raise _Bad(f"a {record.kind} with content")
        try:
            if record.kind == "folder":
                self._enter(folder, name, record)
            elif record.kind == "file":
                self._file(folder, name, record)
            elif record.kind == "link":
                os.symlink(_target(record.target), name, dir_fd=folder)
                os.utime(name, ns=(record.mtime, record.mtime), dir_fd=folder, follow_symlinks=False)
                self._give(folder, name)
            elif record.kind == "gone":
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=folder)
                self._give(folder, name)
            else:
                raise _Bad(f"a second {record.kind}")
        except FileExistsError:
            raise _Bad("a name that comes twice") from None

    def _give(self, folder: int, name: bytes) -> None:
        if self._owner:
            os.chown(name, *self._owner, dir_fd=folder, follow_symlinks=False)

    def _enter(self, folder: int, name: bytes, record: Record) -> None:
        os.mkdir(name, 0o700, dir_fd=folder)
        inner = os.open(name, _FOLDER, dir_fd=folder)
        self._open.append((inner, record))
        if record.opaque:
            os.setxattr(inner, OPAQUE, b"y")

    def _file(self, folder: int, name: bytes, record: Record) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            left = record.size
            while left:
                data = self._source.exactly(min(left, CHUNK))
                left -= len(data)
                while data:
                    data = data[os.write(fd, data) :]
            self._finish(fd, record)
        finally:
            os.close(fd)


def _name(shown: str) -> bytes:
    name = unquote_to_bytes(shown)
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name or len(name) > 255:
        raise _Bad(f"the name {shown!r}")
    return name


def _target(shown: str) -> bytes:
    target = unquote_to_bytes(shown)
    if not target or b"\0" in target or len(target) > 4095:
        raise _Bad("a link without a target")
    return target
