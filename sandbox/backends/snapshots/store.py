"""A folder of snapshots, named by what they hold. Safe for many processes at once, any of which may be killed.

    archives/DIGEST        the snapshot (archive.py): all that another machine needs
    trees/BOOT/DIGEST/     the same unpacked, `layer` and `state`: a cache of this machine since it booted, because
                           only what was proved since then is known to have reached the files
    leases/DIGEST          locked by those who use the snapshot
    drafts/NAME, NAME.lock what is being made or removed; the lock is held by whoever does it

Everything appears by one rename, and what a killed process leaves is a draft that nobody locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.backends.base import Sandbox, SandboxError, Snapshot, SnapshotDamaged, SnapshotMissing
from sandbox.backends.namespaces.kernel.identity import sandbox_identity
from sandbox.backends.namespaces.layers import remove_tree
from sandbox.backends.snapshots import archive
from sandbox.backends.snapshots.locks import Lock, alone, shared

DIGEST = re.compile(r"[0-9a-f]{64}")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAX_BYTES = 16 << 30
MAX_ENTRIES = 2_000_000
MIN_AGE_SECONDS = 3600.0


class Lease:
    """The right to use a snapshot: while it is open, collection leaves it alone. Ends with the process."""

    def __init__(self, digest: str, snapshot: Snapshot, lock: Lock) -> None:
        self.digest, self.snapshot, self._lock = digest, snapshot, lock

    def close(self) -> None:
        """Safe to call twice."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed."""

    snapshots: int = 0
    trees: int = 0
    """Unpacked copies, of removed snapshots and of kept ones that nobody used for a while."""
    drafts: int = 0
    """What killed processes had begun."""


class SnapshotStore:
    """Blocking, save for `save` and `use`. Errors are those of `SnapshotError`."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root = root.resolve()
        for name in ("archives", "trees", "leases", "drafts"):
            (self._root / name).mkdir(exist_ok=True, mode=0o700)
        self._trees = self._root / "trees" / (BOOT_ID.read_text().strip() if BOOT_ID.exists() else "one")
        self._trees.mkdir(exist_ok=True, mode=0o700)

    async def save(self, sandbox: Sandbox) -> Lease:
        """Take a snapshot of `sandbox` and keep it. Raises what `Sandbox.snapshot` raises."""
        with self._draft() as draft:
            (draft / "tree").mkdir()
            snapshot = await sandbox.snapshot(draft / "tree" / "layer")
            return await _lease(lambda: self._keep(draft, snapshot))

    def put(self, snapshot: Snapshot) -> Lease:
        """Keep a copy of `snapshot`."""
        with self._draft() as draft:
            return self._keep(draft, snapshot)

    def get(self, digest: str) -> Lease:
        """The snapshot, unpacked if need be. Raises SnapshotMissing, SnapshotDamaged."""
        if not DIGEST.fullmatch(digest):
            raise SnapshotMissing(f"{digest!r} is not the digest of a snapshot")
        lock = shared(self._root / "leases" / digest)
        try:
            tree = self._trees / digest
            if not tree.exists():
                self._unpack(digest, tree)
            with contextlib.suppress(FileNotFoundError):
                os.utime(tree)
            return Lease(digest, _snapshot(tree), lock)
        except BaseException:
            lock.close()
            if digest not in self.digests() and (last := alone(lock.path)):
                last.remove()
            raise

    async def use(self, digest: str) -> Lease:
        """`get` without blocking the event loop."""
        return await _lease(lambda: self.get(digest))

    def digests(self) -> set[str]:
        """Digests of all stored snapshots."""
        return {path.name for path in (self._root / "archives").iterdir()}

    def collect(self, keep: Collection[str], *, min_age_seconds: float = MIN_AGE_SECONDS) -> Collected:
        """Remove what is not in `keep`, is not leased, and was kept longer ago than `min_age_seconds`.

        The age covers those who have saved a snapshot and not yet told whoever compiled `keep`. Unpacked trees that
        nobody used for as long go too, and what killed processes left behind.
        """
        before = time.time() - min_age_seconds
        trees = {path.name for path in (self._root / "trees").glob("*/*")}
        snapshots = copies = 0
        leases = {path.name for path in (self._root / "leases").iterdir()}
        for digest in self.digests() | trees | leases:
            if not any(self._unused(digest, keep, before)) and self._there(digest):
                continue
            lock = alone(self._root / "leases" / digest)
            if lock is None:
                continue
            unwanted, stale = self._unused(digest, keep, before)  # it may have been saved anew before we had the lock
            for tree in stale:
                self._remove(tree)
            if unwanted:
                (self._root / "archives" / digest).unlink()
            lock.remove()
            snapshots, copies = snapshots + unwanted, copies + len(stale)
        self._forget_other_boots(before)
        return Collected(snapshots=snapshots, trees=copies, drafts=self.sweep())

    def _there(self, digest: str) -> bool:
        """Whether anything of it is kept: who was killed before it was saved leaves a lease of nothing."""
        return (self._root / "archives" / digest).exists() or any((self._root / "trees").glob(f"*/{digest}"))

    def _unused(self, digest: str, keep: Collection[str], before: float) -> tuple[bool, list[Path]]:
        """Whether its archive may go, and which of its trees."""
        stale = [tree for tree in (self._root / "trees").glob(f"*/{digest}") if _older(tree, before)]
        return digest not in keep and _older(self._root / "archives" / digest, before), stale

    def _forget_other_boots(self, before: float) -> None:
        for folder in (self._root / "trees").iterdir():
            if folder != self._trees and _older(folder, before):
                with contextlib.suppress(OSError):  # it is not empty
                    folder.rmdir()

    def sweep(self) -> int:
        """Remove what killed processes had begun; how many things that were."""
        swept = 0
        for path in (self._root / "drafts").glob("*.lock"):
            lock = alone(path)
            if lock:
                remove_tree(str(path.with_suffix("")))
                lock.remove()
                swept += 1
        return swept

    def _keep(self, draft: Path, snapshot: Snapshot) -> Lease:
        with open(draft / "archive", "wb") as file:
            digest = archive.pack(snapshot.layer, snapshot.shell_state, file)
        tree = draft / "tree"
        if snapshot.layer == tree / "layer":
            (tree / "state").write_bytes(snapshot.shell_state)
        with shared(self._root / "leases" / digest):
            if (tree / "state").exists():
                self._show(tree, self._trees / digest)
            os.replace(draft / "archive", self._root / "archives" / digest)
            return self.get(digest)

    def _unpack(self, digest: str, tree: Path) -> None:
        path = self._root / "archives" / digest
        with self._draft() as draft:
            layer = draft / "tree" / "layer"
            layer.mkdir(parents=True)
            owner = sandbox_identity() if os.geteuid() == 0 else None
            try:
                with open(path, "rb") as file:
                    state = archive.unpack(
                        file, digest, layer, owner=owner, most_bytes=MAX_BYTES, most_entries=MAX_ENTRIES
                    )
            except FileNotFoundError:
                raise SnapshotMissing(f"no snapshot {digest} in {self._root}") from None
            except SnapshotDamaged:
                path.unlink(missing_ok=True)
                raise
            (draft / "tree" / "state").write_bytes(state)
            self._show(draft / "tree", tree)

    def _show(self, made: Path, tree: Path) -> None:
        self._trees.mkdir(exist_ok=True, mode=0o700)
        try:
            os.rename(made, tree)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was quicker
                raise

    def _remove(self, tree: Path) -> None:
        """First out of sight, then away."""
        with self._draft() as draft:
            os.rename(tree, draft / "tree")

    @contextlib.contextmanager
    def _draft(self) -> Iterator[Path]:
        """A folder of our own, removed at the end with what is still in it."""
        path = self._root / "drafts" / secrets.token_hex(8)
        lock = None
        while lock is None:
            lock = alone(path.with_suffix(".lock"))
        try:
            path.mkdir(mode=0o700)
            yield path
        finally:
            remove_tree(str(path))
            lock.remove()


async def _lease(make: Callable[[], Lease]) -> Lease:
    """What `make` gives, in a thread. Who is cancelled meanwhile holds nothing and leaves nothing at work."""
    making = asyncio.ensure_future(asyncio.to_thread(make))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        with contextlib.suppress(SandboxError, OSError):
            (await making).close()
        raise


def _snapshot(tree: Path) -> Snapshot:
    return Snapshot(layer=tree / "layer", shell_state=(tree / "state").read_bytes())


def _older(path: Path, than: float) -> bool:
    try:
        return path.stat().st_mtime <= than
    except FileNotFoundError:
        return False
