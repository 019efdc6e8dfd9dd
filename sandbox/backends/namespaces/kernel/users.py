"""Who a sandbox is for the kernel: its user id, and how files of other owners are shown as its own."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal

from sandbox.backends.namespaces.kernel import identity, syscalls
from sandbox.backends.namespaces.kernel.uids import Lease, Pool

IDMAPPED_OVERLAYS = (5, 19)
ALL_IDS = (1 << 32) - 1
KEPT = 128
"""Users that wait for their next sandbox: a new one costs a fork."""
SHARED = "shared"
"""Value of `backends.USERS` that lets all sandboxes of a root host be one user."""


class User:
    """One kernel user and group, of one sandbox at a time unless it is the shared one."""

    def __init__(self, uid: int, gid: int, lease: Lease | None = None) -> None:
        self.uid, self.gid, self.lease = uid, gid, lease
        self._translations: dict[tuple[int, int], int] = {}

    def translation(self, owner: tuple[int, int]) -> int:
        """Descriptor of a user namespace that shows `owner` on disk as this user. Raises OSError."""
        if owner not in self._translations:
            self._translations[owner] = _namespace(owner, (self.uid, self.gid))
        return self._translations[owner]

    def close(self) -> None:
        """End the lease, and forget what was made for it."""
        for file in self._translations.values():
            os.close(file)
        if self.lease:
            self.lease.close()


class Users:
    """The users that a zygote starts sandboxes as: one each where the machine allows, else one for all."""

    def __init__(self, host_uid: int, *, shared: bool) -> None:
        uid, gid = identity.sandbox_identity()
        self._shared = User(uid, gid)
        self._free: list[User] = []
        self._pool: Pool | None = None
        self.reasons: list[str] = []
        """Why sandboxes share a user, when they do; each names the remedy."""
        if why := _why_shared(host_uid, shared):
            self.reasons.append(f"sandboxes share one user, and what the kernel counts by user: {why}")
            return
        try:
            self._pool = Pool()
        except identity.NoIdentity as error:
            self.reasons.append(f"sandboxes share one user, and what the kernel counts by user: {error}")

    @property
    def own(self) -> bool:
        """Whether each sandbox is a user of its own."""
        return self._pool is not None

    @property
    def owner(self) -> tuple[int, int]:
        """Who owns layers on disk."""
        return self._shared.uid, self._shared.gid

    def take(self) -> User:
        """A user for one sandbox. Raises NoIdentity when all are in use."""
        if self._pool is None:
            return self._shared
        if self._free:
            return self._free.pop()
        lease = self._pool.take()
        user = User(lease.uid, lease.uid, lease)
        try:
            user.translation(self.owner)
        except OSError:
            user.close()
            raise
        return user

    def give_back(self, user: User) -> None:
        """To be called when the last process of the sandbox is gone."""
        if user is self._shared:
            return
        if len(self._free) < KEPT:
            self._free.append(user)
        else:
            user.close()


def _why_shared(host_uid: int, shared: bool) -> str | None:
    if shared:
        return "that is this installation's setting (OPENCOMPOSER_SANDBOX_USERS)"
    if host_uid != 0:
        return "an ordinary user has one id to give; run as root"
    if identity.id_map("uid") != [(0, ALL_IDS)]:
        return "in a container whose user ids are mapped the owners of layers cannot be translated; run outside it"
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if release is None or tuple(int(part) for part in release.groups()) < IDMAPPED_OVERLAYS:
        return f"Linux {platform.release()} cannot translate the owners of layers; use 5.19 or later"
    return None


def _namespace(owner: tuple[int, int], shown: tuple[int, int]) -> int:
    """A user namespace without processes that maps `owner` to `shown`. Raises OSError."""
    ready, wait = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            syscalls.unshare(syscalls.NEWUSER, "userns")
        os.write(wait, b"x")
        signal.pause()
    os.close(wait)
    try:
        os.read(ready, 1)
        for kind, on_disk, number in zip(("uid", "gid"), owner, shown, strict=True):
            syscalls.put(f"/proc/{pid}/{kind}_map", f"{on_disk} {number} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
