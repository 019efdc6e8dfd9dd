"""Full disk: checked before work starts, and detected in any error that it caused."""

from __future__ import annotations

import errno
import re
import shutil

from composer_web.env import env

FULL = {errno.ENOSPC, errno.EDQUOT}
OS_ERROR = re.compile(r"\(os error (\d+)\)")
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


def why_full(error: BaseException) -> str | None:
    """What to tell people when a full disk is behind `error`, else None. By the types of the error and its causes: what it
    says may quote a policy."""
    if isinstance(error, DiskFull):
        return str(error)
    seen: BaseException | None = error
    while seen is not None:
        if (isinstance(seen, OSError) and seen.errno in FULL) or _of_a_library(seen):
            return f"the disk is full ({error}); free some space below {env().data}, {REMEDY}"
        seen = seen.__cause__ or seen.__context__
    return None


def _of_a_library(error: BaseException) -> bool:
    """safetensors and obstore raise no OSError; their own errors state the number of the system's."""
    from obstore.exceptions import BaseError
    from safetensors import SafetensorError

    if not isinstance(error, SafetensorError | BaseError):
        return False
    found = OS_ERROR.search(str(error))
    return found is not None and int(found[1]) in FULL
