"""Tools available only during installation: a layer under its sandbox that no environment keeps."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from sandbox.errors import PackageUnavailable
from sandbox.repositories.ownership import give_to_sandbox
from sandbox.tasks.environments import EnvironmentStore


def find_uv() -> Path:
    """uv beside this interpreter, or on the PATH. Raises PackageUnavailable."""
    beside = Path(sys.executable).parent / "uv"
    found = beside if beside.is_file() else Path(shutil.which("uv") or "")
    if not found.is_file():
        raise PackageUnavailable(
            "uv is not installed, and environments are installed with it", remedy="Run `make install`"
        )
    return found


def tools_layer(store: EnvironmentStore) -> Path:
    """A directory with `.local/bin/uv`, made once for each uv."""
    uv = find_uv()
    found = uv.stat()
    key = hashlib.sha256(f"{uv} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:16]
    target = store.root / "tools" / key
    if target.is_dir():
        return target
    folder = store.working_directory()
    try:
        (folder / ".local" / "bin").mkdir(parents=True)
        shutil.copy2(uv, folder / ".local" / "bin" / "uv")
        give_to_sandbox(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target
