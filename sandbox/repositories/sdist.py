"""A checkout from a source distribution: the archive's files, with its name, version and age."""

from __future__ import annotations

import datetime
import re
import tarfile
from pathlib import Path

from sandbox.errors import PackageError
from sandbox.repositories.archives import members
from sandbox.repositories.artefacts import CACHES
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile

FIRST_YEAR = 2005
MAX_HEADERS = 50_000


def from_archive(
    archive: Path, *, name: str = "", version: str = "", uploaded: datetime.date | None = None
) -> Checkout:
    """`name` and `version` come from the archive's own metadata unless given; `uploaded` counts where it is undated.

    Raises PackageError.
    """
    files = {
        m.path: TreeFile(m.content, m.executable)
        for m in members(archive)
        if not any(p in CACHES for p in m.path.split("/"))
    }
    if not files:
        raise PackageError(f"{archive.name} holds no files")
    info = files.get("PKG-INFO", TreeFile(b"")).content.decode("utf-8", "replace")
    stem = re.sub(r"\.(tar\.gz|tgz|zip)$", "", archive.name)
    guess = re.fullmatch(r"(.+?)-(\d[\w.+!-]*)", stem)
    name = name or _field(info, "Name") or (guess[1] if guess else stem)
    version = version or _field(info, "Version") or (guess[2] if guess else "")
    return Checkout(name=name, version=version, files=files, released=_written(archive) or uploaded)


def _field(info: str, key: str) -> str:
    found = re.search(rf"(?m)^{key}: *(\S+)", info)
    return found[1] if found else ""


def _written(archive: Path) -> datetime.date | None:
    """When the newest member was written; None where the archive was made without times."""
    if archive.suffix == ".zip":
        return None
    oldest, newest = float("inf"), 0.0
    with tarfile.open(archive, "r:gz") as tar:
        for count, member in enumerate(tar):
            oldest, newest = min(oldest, member.mtime), max(newest, member.mtime)
            if count > MAX_HEADERS:
                break
    if oldest == newest:
        return None  # one time for all: made up by the build backend
    day = datetime.datetime.fromtimestamp(newest, datetime.UTC).date()
    return day if day.year >= FIRST_YEAR and day <= datetime.datetime.now(datetime.UTC).date() else None
