"""Whether each sandbox of a root host is a kernel user of its own."""

from __future__ import annotations

import os

from sandbox.backends.base import SandboxUnavailable

USERS = "OPENCOMPOSER_SANDBOX_USERS"
"""Variable that says whether each sandbox of a root host is a kernel user of its own (`own`) or all are one (`shared`)."""


def users() -> str:
    """`own` or `shared`. Raises SandboxUnavailable when the variable says neither."""
    said = os.environ.get(USERS) or "own"
    if said not in ("own", "shared"):
        raise SandboxUnavailable(f"{USERS} is {said!r}: use own or shared")
    return said
