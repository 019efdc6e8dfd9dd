"""A kernel user for each sandbox: an id that no other sandbox of this engine has.

The name of a sandbox's keeper holds its id, for the engine gives no name twice. So workers that share nothing but the
engine never lend the same id, and an id is free again when its keeper is gone, however that ended. A box is mapped from
that id to the user that every sandbox has inside (`inside.py`); the layers of its home are idmapped mounts that the keeper
makes and the engine stacks.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

from sandbox.backends.base import SandboxUnavailable
from sandbox.backends.docker.engine import NameTaken
from sandbox.backends.namespaces.kernel.uids import DOCKER_IDS
from sandbox.backends.users import USERS, users

NAME = "opencomposer-user-"
RUN_OUT = (
    f"all {len(DOCKER_IDS)} user ids for sandboxes ({DOCKER_IDS[0]}–{DOCKER_IDS[-1]}) are in use on this engine: "
    "run fewer sandboxes at once"
)


class Users:
    """The ids that this process tries next. Safe to share between threads."""

    def __init__(self, first: int | None = None) -> None:
        """`first` is tried first; by default one at random, so that workers rarely meet."""
        self._next = random.randrange(len(DOCKER_IDS)) if first is None else DOCKER_IDS.index(first)

    def take(self, create: Callable[[str], str]) -> tuple[int, str]:
        """A free id, and the container that `create` made under the id's name. Raises SandboxUnavailable."""
        for _ in range(len(DOCKER_IDS)):
            uid, self._next = DOCKER_IDS[self._next], (self._next + 1) % len(DOCKER_IDS)
            try:
                return uid, create(f"{NAME}{uid}")
            except NameTaken:
                continue
        raise SandboxUnavailable(RUN_OUT)


def why_shared(info: dict, on_host_kernel: bool) -> str:
    """Why all sandboxes of this engine are one user, with the remedy; empty where each may be one of its own."""
    if users() == "shared":
        return f"that is this installation's setting ({USERS})"
    if not on_host_kernel:
        return "the runtime has a kernel of its own, and maps no users for us; use runc"
    if any("rootless" in option for option in info.get("SecurityOptions") or ()):
        return "a rootless engine cannot translate the owners of layers; use one that runs as root"
    return ""


def explained(error: Exception) -> str:
    """Why a trial with a user of its own failed, with the remedy."""
    return (
        f"the engine's machine (this is Linux {os.uname().release}) cannot translate the owners of layers for containers "
        f"({error}); use Linux 6.15 or later with user namespaces allowed (`user.max_user_namespaces`)"
    )
