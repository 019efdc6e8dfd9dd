"""Which kernel uid and gid the sandboxes of this process run under, and what they are called inside."""

from __future__ import annotations

import os

INNER_UID = 1000
INNER_GID = 1000
USER = "dev"
HOSTNAME = "workstation"

ROOT_CANDIDATES = (200_000, 64_000)
"""Kernel ids for sandboxes of a root host, best first: far from any account, and inside our own id map."""


class NoIdentity(Exception):
    """No unprivileged id is mapped in the user namespace that this process lives in."""


def sandbox_identity() -> tuple[int, int]:
    """(uid, gid) of every sandbox process as seen by this process. Root never lends its own id."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for candidate in ROOT_CANDIDATES:
        if _mapped("uid", candidate) and _mapped("gid", candidate):
            return candidate, candidate
    raise NoIdentity(
        f"root here owns no spare user ids (none of {ROOT_CANDIDATES} is in /proc/self/uid_map); "
        "run as an ordinary user, or give the container a full id range"
    )


def _mapped(kind: str, number: int) -> bool:
    with open(f"/proc/self/{kind}_map") as lines:
        for line in lines:
            first, _, count = (int(part) for part in line.split())
            if first <= number < first + count:
                return True
    return False
