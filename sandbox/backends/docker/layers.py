"""Environment layers for containers: used in place, or copied with the owner that sandboxes have.

Files of a layer are changed through an overlay, which needs them to belong to the sandbox's user. A layer of that
owner is used in place. Of any other a copy is made, once per process, in a volume of the engine. Where each sandbox is a
user of its own, its keeper shows every layer as that user's (`users.py`); copies are made of those whose file system
cannot do that.
"""

from __future__ import annotations

import os
import stat
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from sandbox.backends.base import SandboxUnavailable
from sandbox.backends.docker import containers
from sandbox.backends.docker.engine import Engine
from sandbox.backends.namespaces.kernel import identity
from sandbox.backends.users import USERS

OWNER = (identity.INNER_UID, identity.INNER_GID)
"""Who must own a layer so that it is used in place."""
COPIES_KEPT = 48
PARTS_OF_OPTIONS = set(",:\\")
"""Characters that a path among mount options cannot have."""

Key = tuple[str, int, int, int, int]


class LayerRefused(SandboxUnavailable):
    """The owners of a layer's files cannot be translated where it lies."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"the owners of files in layer {path} cannot be translated by this kernel or file system ({why}): keep it on "
            f"ext4, xfs, btrfs or tmpfs, or let sandboxes share one user (`{USERS}=shared`)"
        )
        self.path = path


@dataclass
class Copy:
    volume: str
    path: str


class Layers:
    """The copies that this process had made; the least used are removed."""

    def __init__(self, engine: Engine, kind: containers.Kind) -> None:
        self._engine, self._kind = engine, kind
        self._copies: OrderedDict[Key, Copy] = OrderedDict()
        self._making: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()
        self._copied_devices: set[int] = set()
        """File systems whose layers are copied although sandboxes are users of their own."""

    def copy_from_now_on(self, path: Path) -> bool:
        """Copy the layers of the file system of `path`; False when that was so already, or cannot be."""
        try:
            device = path.stat().st_dev
        except OSError:
            return False
        with self._lock:
            known = device in self._copied_devices or str(path) in {copy.path for copy in self._copies.values()}
            self._copied_devices.add(device)
        return not known

    def usable(self, paths: list[Path]) -> list[str]:
        """Where the engine finds each layer. Raises SandboxUnavailable."""
        return [self._one(path) for path in paths]

    def trim(self) -> None:
        """Remove the copies used longest ago, unless a sandbox uses them."""
        with self._lock:
            surplus = list(self._copies.items())[: max(0, len(self._copies) - COPIES_KEPT)]
        for key, copy in surplus:
            if self._engine.remove_volume(copy.volume):
                with self._lock:
                    self._copies.pop(key, None)

    def doubt(self) -> None:
        """A sandbox did not start: copies are made anew, for the engine may have lost them (a restart, a prune)."""
        with self._lock:
            self._copies.clear()  # what is left of them goes with our lease

    def forget(self) -> None:
        """Remove all copies."""
        with self._lock:
            copies = list(self._copies.values())
            self._copies.clear()
        for copy in copies:
            self._engine.remove_volume(copy.volume)

    def _one(self, path: Path) -> str:
        try:
            found = path.stat()
        except OSError as error:
            raise SandboxUnavailable(f"layer {path}: {error.strerror}") from None
        if not stat.S_ISDIR(found.st_mode):
            raise SandboxUnavailable(f"layer {path} is not a directory")
        if self._kind.own_users and found.st_dev not in self._copied_devices:
            return os.path.abspath(path)
        if (found.st_uid, found.st_gid) == OWNER and not PARTS_OF_OPTIONS & set(str(path)):
            return os.path.abspath(path)
        key = (str(path), found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns)
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                copy = self._copies.get(key)
                if copy:
                    self._copies.move_to_end(key)
            if copy is None:
                copy = self._make(path)
                with self._lock:
                    self._copies[key] = copy
        with self._lock:
            self._making.pop(key, None)
        return copy.path

    def _make(self, path: Path) -> Copy:
        name = f"opencomposer-{uuid.uuid4().hex}"
        place = self._engine.create_volume(name, self._kind.labels)
        try:
            config = containers.copier(self._kind, [str(path)], containers.named_volume(name))
            self._engine.job(config, {"role": "copy", "sources": 1, "owner": OWNER, "budget": None})
        except BaseException:
            self._engine.remove_volume(name)
            raise
        return Copy(name, place)
