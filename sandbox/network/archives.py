"""Package files in transit: held until their digest is verified, and searched for denied modules."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import IO

from sandbox.network.fetch import RegistryFailed
from sandbox.network.policy import MIB, Denied, Rule

IN_MEMORY = 4 * MIB
MAX_ENTRIES = 200_000
MAX_UNPACKED = 4096 * MIB
MAX_ZIP_TAIL = 22 + (1 << 16)
MAX_DIRECTORY = 32 * MIB
CODE = (".py", ".pyc", ".so", ".pyd")


class Held:
    """A file that has come whole, with the digests of its content; nothing of it was given on yet."""

    def __init__(self) -> None:
        self.content: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - see close
        self.size = 0
        self.sha256, self.sha512 = hashlib.sha256(), hashlib.sha512()

    def close(self) -> None:
        self.content.close()


async def hold(chunks: AsyncIterator[bytes]) -> Held:
    """Take a file in. The caller closes what comes back."""
    held = Held()
    try:
        async with aclosing(chunks) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                held.content.write(chunk)
                held.sha256.update(chunk)
                held.sha512.update(chunk)
                held.size += len(chunk)
    except BaseException:
        held.close()
        raise
    held.content.seek(0)
    return held


async def refuse_modules(filename: str, held: Held, denied: frozenset[str]) -> None:
    """Raises Denied (MODULE) when the archive would install one of these top-level modules, RegistryFailed for an
    archive that cannot be read."""
    if not denied:
        return
    found = await asyncio.to_thread(_modules, filename, held.content, denied)
    held.content.seek(0)
    if found:
        raise Denied(Rule.MODULE, f"{filename} holds the module {found}, which is not available to this task")


def _modules(filename: str, content: IO[bytes], denied: frozenset[str]) -> str | None:
    try:
        if filename.endswith((".whl", ".zip")):
            _refuse_directory_bomb(content)
            with zipfile.ZipFile(content) as archive:
                names = archive.namelist()
        else:
            names = _tar_names(content)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, ValueError, NotImplementedError):
        raise RegistryFailed(f"{filename} is not a readable archive") from None
    wheel = filename.endswith(".whl")
    for name in names:
        module = _module_of(name, wheel=wheel)
        if module in denied:
            return module
    return None


def _refuse_directory_bomb(content: IO[bytes]) -> None:
    """A zip archive's directory becomes objects as soon as it is opened, so its size is looked at first. Raises
    ValueError."""
    size = content.seek(0, io.SEEK_END)
    content.seek(max(0, size - MAX_ZIP_TAIL))
    tail = content.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 16 or b"PK\x06\x07" in tail[max(0, end - 20) : end]:
        raise ValueError("no end of the directory, or one of more entries than any package has")
    if int.from_bytes(tail[end + 12 : end + 16], "little") > MAX_DIRECTORY:
        raise ValueError("too many entries")


def _tar_names(content: IO[bytes]) -> list[str]:
    names, unpacked = [], 0
    with tarfile.open(fileobj=content, mode="r:gz") as archive:
        for member in archive:
            names.append(member.name)
            unpacked += member.size
            if len(names) > MAX_ENTRIES or unpacked > MAX_UNPACKED:
                raise ValueError("too large")
    return names


def _module_of(path: str, *, wheel: bool) -> str | None:
    """The top-level module that this entry is a part of: below a source archive's own folder also in `src` or `lib`."""
    if not path.endswith(CODE):
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if wheel:
        if len(parts) > 2 and parts[0].endswith(".data") and parts[1] in ("purelib", "platlib"):
            parts = parts[2:]
    else:
        parts = parts[1:]
        if len(parts) > 1 and parts[0] in ("src", "lib", "python"):
            parts = parts[1:]
    return parts[0].partition(".")[0] if parts else None
