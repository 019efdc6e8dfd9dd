"""Checkpoints that somebody uses: a run that starts from them, an evaluation, production. Retention leaves them alone.

    step-000020/in-use/run-7    an empty file per holder

Marks are files, because the process that removes old checkpoints may run on another machine than the one that learns of a use.
Needs no torch: web processes hold and release.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

FOLDER = "in-use"


def hold(checkpoint: Path, holder: str) -> bool:
    """Keep this checkpoint until `release`; False if it is gone. Idempotent."""
    try:
        (checkpoint / FOLDER).mkdir(exist_ok=True)
        (checkpoint / FOLDER / holder).touch()
    except FileNotFoundError:
        return False
    return (checkpoint / FOLDER / holder).exists()  # else it was retired meanwhile


def release(checkpoint: Path, holder: str) -> None:
    """Idempotent."""
    (checkpoint / FOLDER / holder).unlink(missing_ok=True)


def holders(checkpoint: Path) -> set[str]:
    """Who uses this checkpoint."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return {path.name for path in (checkpoint / FOLDER).iterdir()}
    return set()


def remove_unless_held(checkpoint: Path) -> bool:
    """Remove a checkpoint; False if somebody holds it. Under another name first, so that whoever comes to hold it now finds
    that it is gone. Raises OSError."""
    retired = checkpoint.with_name(f".{checkpoint.name}.retired")
    shutil.rmtree(retired, ignore_errors=True)  # of a process that was killed here
    if holders(checkpoint):
        return False
    checkpoint.rename(retired)
    if holders(retired):
        retired.rename(checkpoint)
        return False
    shutil.rmtree(retired)
    return True
