"""A full disk: seen before work is begun, and recognised in whatever error it caused."""

from __future__ import annotations

import errno
import shutil

from composer_web.env import env

FULL = {errno.ENOSPC, errno.EDQUOT}
WORDS = ("No space left on device", "Disk quota exceeded", "os error 28")
"""What libraries that raise no OSError say."""
REMEDY = "then resume the run"


class DiskFull(Exception):
    """There is no room for what would be written next. The message says where, and what to do."""


def require_space() -> None:
    """Raises DiskFull when less than the reserve is free, so that what runs has room to end well."""
    settings = env()
    free, reserve = shutil.disk_usage(settings.data).free, settings.disk_reserve_mb << 20
    if free < reserve:
        raise DiskFull(
            f"the disk of {settings.data} is full: {free >> 20} MiB are free and OPENCOMPOSER_DISK_RESERVE_MB keeps "
            f"{settings.disk_reserve_mb}; free some, {REMEDY}"
        )


def why_full(error: BaseException) -> str | None:
    """What to tell people when a full disk is behind `error`, else None."""
    if isinstance(error, DiskFull):
        return str(error)
    seen: BaseException | None = error
    while seen is not None:
        if (isinstance(seen, OSError) and seen.errno in FULL) or mentions(str(seen)):
            return f"the disk is full ({error}); free some space below {env().data}, {REMEDY}"
        seen = seen.__cause__ or seen.__context__
    return None


def mentions(text: str) -> bool:
    """Whether an error that was passed on as text was caused by a full disk."""
    return any(words in text for words in WORDS)
