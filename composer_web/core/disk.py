"""Full disk: checked before work starts, and detected in any error that it caused."""

from __future__ import annotations

import errno
import shutil

from composer_web.env import env

FULL = {errno.ENOSPC, errno.EDQUOT}
WORDS = ("No space left on device", "Disk quota exceeded", "os error 28")
"""Messages of libraries that raise no OSError."""
REMEDY = "then resume the run"


class DiskFull(Exception):
    """There is no room for the next write. The message names the place and the remedy."""


def require_space() -> None:
    """Raises DiskFull if less than the reserve is free, so that running work can finish."""
    settings = env()
    free, reserve = shutil.disk_usage(settings.data).free, settings.disk_reserve_mb << 20
    if free < reserve:
        raise DiskFull(
            f"the disk of {settings.data} is full: {free >> 20} MiB are free and OPENCOMPOSER_DISK_RESERVE_MB keeps "
            f"{settings.disk_reserve_mb}; free some, {REMEDY}"
        )


def why_full(error: BaseException, *, by_words: bool = True) -> str | None:
    """What to tell people when a full disk is behind `error`, else None.

    `by_words` also reads the messages of libraries that raise no OSError; not for errors that may quote a policy.
    """
    if isinstance(error, DiskFull):
        return str(error)
    seen: BaseException | None = error
    while seen is not None:
        if (isinstance(seen, OSError) and seen.errno in FULL) or (by_words and _mentions(str(seen))):
            return f"the disk is full ({error}); free some space below {env().data}, {REMEDY}"
        seen = seen.__cause__ or seen.__context__
    return None


def _mentions(text: str) -> bool:
    """Whether a full disk caused an error that was passed on as text."""
    return any(words in text for words in WORDS)
