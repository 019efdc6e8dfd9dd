"""Whether each sandbox is a kernel user of its own: the installation's setting, and the warning where it is not so."""

from __future__ import annotations

import logging
import os

from sandbox.backends.base import Capabilities, SandboxUnavailable

log = logging.getLogger(__name__)

USERS = "OPENCOMPOSER_SANDBOX_USERS"
"""Variable with one of VALUES."""
VALUES = ("own", "required", "shared")
"""`own`: each sandbox is a kernel user of its own where the machine allows, `required`: or none starts, `shared`: all
are one."""


def users() -> str:
    """One of VALUES. Raises SandboxUnavailable when the variable says something else."""
    said = os.environ.get(USERS) or VALUES[0]
    if said not in VALUES:
        raise SandboxUnavailable(f"{USERS} is {said!r}: use own, required or shared")
    return said


def warn_of_neighbours(backend: str, found: Capabilities) -> None:
    """Log what it means for grading when sandboxes of this machine are not users of their own."""
    if found.usable and "users" not in found.enforced:
        reasons = "; ".join(reason for reason in found.reasons if "user" in reason)
        log.warning(
            "%s: sandboxes of this machine share a kernel user (%s). One that is graded can signal another: grade on other "
            "workers than agents run on, or set %s=required to refuse",
            *(backend, reasons, USERS),
        )
