"""Who owns the files of layers on disk, and what that user is called inside a sandbox."""

from __future__ import annotations

import os

INNER_UID = 1000
INNER_GID = 1000
USER = "dev"
HOSTNAME = "workstation"

ROOT_CANDIDATES = (200_000, 64_000)
"""Owners of layers under a root host, best first: far from any account, and inside our own id map."""


class NoIdentity(Exception):
    """No unprivileged id is mapped in the user namespace that this process lives in."""


def sandbox_identity() -> tuple[int, int]:
    """(uid, gid) that owns layers on disk, and that sandboxes share where they cannot have one each (`users.py`).

    Root never lends its own id.
    """
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for candidate in ROOT_CANDIDATES:
        if _mapped("uid", candidate) and _mapped("gid", candidate):
            return candidate, candidate
    raise NoIdentity(
        f"root here owns no spare user ids (none of {ROOT_CANDIDATES} is in /proc/self/uid_map); "
        "run as an ordinary user, or give the container a full id range"
    )


def id_map(kind: str) -> list[tuple[int, int]]:
    """The ids of `kind` (uid or gid) that exist here, as (first, end) pairs."""
    with open(f"/proc/self/{kind}_map") as lines:
        extents = [[int(part) for part in line.split()] for line in lines]
    return [(first, first + count) for first, _, count in extents]


def _mapped(kind: str, number: int) -> bool:
    return any(first <= number < end for first, end in id_map(kind))
