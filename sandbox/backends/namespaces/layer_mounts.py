"""Environment layers as sandboxes stack them: read-only, with the sandbox's user as the owner of every file."""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict

from sandbox.backends.namespaces.kernel import syscalls
from sandbox.backends.namespaces.kernel.base_root import READONLY
from sandbox.backends.namespaces.kernel.users import User

LAYERS_KEPT = 48


class LayerError(Exception):
    """An environment layer cannot be used; the message says what to do."""


def detached(path: str, user: User, *, root_host: bool) -> int:
    """The host directory `path` as a detached read-only mount whose files `user` owns. Raises LayerError, OSError."""
    found = _folder(path)
    owner = (found.st_uid, found.st_gid)
    if owner == (user.uid, user.gid):
        return syscalls.detached_tree(path, READONLY, step="layer")
    if not root_host:
        remedy = f"run `chown -R {user.uid}:{user.gid} {path}`, or copy it"
        raise LayerError(f"layer {path} belongs to {owner[0]}:{owner[1]}, not to us: {remedy}")
    try:
        return syscalls.detached_tree(path, READONLY, step="layer", user_namespace=user.translation(owner))
    except OSError as error:
        raise LayerError(
            f"layer {path} belongs to {owner[0]}:{owner[1]}, which cannot be translated by this kernel or file system "
            f"({error.strerror}): keep it on ext4, xfs, btrfs or tmpfs (Linux 5.19; tmpfs 6.3), or {_alternative(user)}"
        ) from None


def _alternative(user: User) -> str:
    if user.lease:
        return "let sandboxes share one user (`OPENCOMPOSER_SANDBOX_USERS=shared`)"
    return f"run `chown -R {user.uid}:{user.gid}` on it"


def _folder(path: str) -> os.stat_result:
    try:
        found = os.stat(path)
    except OSError as error:
        raise LayerError(f"layer {path}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise LayerError(f"layer {path} is not a directory")
    return found


def can_detach(stage: str) -> bool:
    """Whether this kernel makes detached mounts (not before 5.12, nor gVisor)."""
    try:
        os.close(syscalls.detached_tree(f"{stage}/l/empty", READONLY, step="layer"))
    except syscalls.StepError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            raise
        return False
    return True


class BoundLayers:
    """Layers bound below the stage, for kernels without detached mounts; the least used are unmounted."""

    def __init__(self, stage: str, user: User) -> None:
        self._stage, self._user = stage, user
        self._bound: OrderedDict[str, tuple[int, tuple[int, int]]] = OrderedDict()
        self._next = 0

    def numbers(self, paths: list[str]) -> list[int]:
        """The numbers N of `l/N` for these host directories, binding what is new. Raises LayerError, StepError."""
        return [self._number(path) for path in paths]

    def trim(self) -> None:
        while len(self._bound) > LAYERS_KEPT:
            _, (number, _) = self._bound.popitem(last=False)
            self._release(number)

    def _number(self, path: str) -> int:
        found = _folder(path)
        key = (found.st_dev, found.st_ino)
        if path in self._bound:
            number, bound = self._bound[path]
            if bound == key:
                self._bound.move_to_end(path)
                return number
            del self._bound[path]
            self._release(number)
        uid, gid = self._user.uid, self._user.gid
        if (found.st_uid, found.st_gid) != (uid, gid):
            raise LayerError(
                f"layer {path} belongs to {found.st_uid}:{found.st_gid}: run `chown -R {uid}:{gid} {path}` or copy it"
            )
        number, self._next = self._next, self._next + 1
        target = f"{self._stage}/l/{number}"
        os.mkdir(target)
        syscalls.bind_readonly(path, target, READONLY, step="layer")
        self._bound[path] = (number, key)
        return number

    def _release(self, number: int) -> None:
        target = f"{self._stage}/l/{number}"
        syscalls.detach(target)
        os.rmdir(target)
