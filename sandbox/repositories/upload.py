"""A checkout from an uploaded archive."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from sandbox.errors import PackageError
from sandbox.repositories.archives import uploaded
from sandbox.repositories.artefacts import CACHES
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.git import LFS
from sandbox.repositories.history import TreeFile


def from_upload(archive: Path, *, name: str) -> Checkout:
    """Raises PackageError that says what is wrong with the archive."""
    files: dict[str, TreeFile] = {}
    for member in uploaded(archive):
        if member.path in files:
            raise PackageError(f"{archive.name}: {member.path!r} is in it twice", remedy="Pack it again")
        if not any(part in CACHES for part in member.path.split("/")):
            files[member.path] = TreeFile(member.content, member.executable)
    if not files:
        raise PackageError(f"{archive.name} holds no files", remedy="Pack the folder of the repository")
    for path in files:
        if inside := next((str(p) for p in PurePosixPath(path).parents if str(p) in files), None):
            raise PackageError(f"{archive.name}: {path!r} lies inside the file {inside!r}", remedy="Pack it again")
    pointers = sum(file.content.startswith(LFS) for file in files.values())
    notes = (f"{pointers} files are LFS pointers: their contents are not here",) if pointers else ()
    return Checkout(name=name, version="", files=files, notes=notes)
