"""Published versions in a store: what exists, what is kept, what was asked for. Knows nothing of tensors.

v000012/weights.safetensors | delta.safetensors    payload, written first; one a rank where several publish
v000012/probe.json                                 what the policy says of a fixed text, where its publisher knows
v000012/manifest.json                              written last: it is what makes the version exist
pins/<name>                                        a version that garbage collection keeps
anchor-request                                     a subscriber could not follow: next publish is full
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainer.errors import BlobMissing, StoreBusy, StoreUnavailable, VersionMissing
from trainer.weights.blocks import in_threads
from trainer.weights.manifest import FILE_NAME, Manifest, Shard, folder_name, folder_version, parse
from trainer.weights.storage.base import Blobs
from trainer.weights.storage.bucket import BucketBlobs
from trainer.weights.storage.folder import FolderBlobs
from trainer.weights.storage.lease import LEASE_SECONDS

WAIT_SECONDS = 2 * LEASE_SECONDS
"""Longer than a killed publisher has the right to write, so that its successor goes on by itself."""
_REQUEST = "anchor-request"
_POLL_SECONDS = 0.5


def open_versions(where: str | Path, *, wait: float = WAIT_SECONDS) -> Versions:
    """The store at a folder, or at `s3://bucket/prefix`. `wait`: seconds that `writing()` waits for another process."""
    bucket = re.fullmatch(r"s3://([^/]+)/?(.*)", str(where))
    return Versions(BucketBlobs(bucket[1], bucket[2]) if bucket else FolderBlobs(Path(where)), wait=wait)


class Versions:
    def __init__(self, blobs: Blobs, *, wait: float = WAIT_SECONDS) -> None:
        self.blobs = blobs
        self.wait = wait

    @property
    def where(self) -> str:
        return self.blobs.where

    def all(self) -> list[int]:
        """Published versions, ascending. A folder without a manifest does not count."""
        found = (folder_version(key.partition("/")[0]) for key in self.blobs.keys("v") if key.endswith("/" + FILE_NAME))
        return sorted(version for version in found if version is not None)

    def manifest(self, version: int) -> Manifest:
        """Raises VersionMissing or CorruptManifest."""
        try:
            text = self.blobs.read(_key(version, FILE_NAME))
        except BlobMissing as error:
            raise VersionMissing(f"version {version} is not in the weight store {self.where}") from error
        return parse(text, folder_name(version))

    def payloads(self, manifest: Manifest, shards: Sequence[int] | None = None) -> list[bytes]:
        """What each rank wrote, or those of these numbers, read side by side. Raises VersionMissing."""

        def read(shard: Shard) -> bytes:
            try:
                return self.blobs.read(_key(manifest.version, shard.name))
            except BlobMissing as error:
                raise VersionMissing(f"payload of version {manifest.version} is gone from {self.where}") from error

        wanted = manifest.shards if shards is None else [manifest.shards[number] for number in shards]
        return in_threads(read, wanted, threads=8)

    def chain(self, version: int, have: tuple[int, str] | None = None) -> list[Manifest]:
        """The version and what it stands on, its anchor first; without the version and digest that one has, and what is
        before it. Raises VersionMissing or CorruptManifest."""
        found = []
        manifest = self.manifest(version)
        while (manifest.version, manifest.digest) != have:
            found.append(manifest)
            if manifest.base_version is None:
                break
            manifest = self.manifest(manifest.base_version)
        return found[::-1]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclusive right to publish or collect. Raises StoreBusy when another process keeps it longer than `wait`."""
        deadline = time.monotonic() + self.wait
        with ExitStack() as right:
            while True:
                try:
                    right.enter_context(self.blobs.writing())
                    break
                except StoreBusy:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(_POLL_SECONDS)
            yield

    def install(self, manifest: Manifest, payloads: Sequence[bytes], notes: Mapping[str, bytes] | None = None) -> None:
        """Makes the version visible in one step, in place of what had its number. `notes` lie beside its payloads."""
        self.remove(manifest.version)
        for shard, data in zip(manifest.shards, payloads, strict=True):
            self.put(manifest.version, shard.name, data)
        for name, note in (notes or {}).items():
            self.put(manifest.version, name, note)
        self.complete(manifest)

    def put(self, version: int, name: str, data: bytes) -> None:
        """A part of a version that does not exist yet."""
        self.blobs.write(_key(version, name), data)

    def get(self, version: int, name: str) -> bytes:
        """Raises BlobMissing."""
        return self.blobs.read(_key(version, name))

    def drop(self, version: int, names: Iterable[str]) -> None:
        """Parts that nobody needs any more."""
        for name in names:
            self.blobs.delete(_key(version, name))

    def complete(self, manifest: Manifest) -> None:
        """Makes the version visible. Raises LeaseLost when its parts are no longer this process's to answer for."""
        self.blobs.still_writing()
        self.blobs.write(_key(manifest.version, FILE_NAME), manifest.model_dump_json(indent=1).encode())

    def remove(self, version: int) -> None:
        """Takes a version away: with its manifest it stops to exist, then its bytes are freed."""
        self.blobs.delete(_key(version, FILE_NAME))
        for key in list(self.blobs.keys(_key(version, ""))):
            self.blobs.delete(key)

    def bytes(self) -> int:
        """What all versions take."""
        return sum(self.blobs.sizes("v").values())

    def clear(self) -> Iterator[int]:
        """Takes every version away, newest first, and yields each once it is gone; the pins go last. Only under `writing()`."""
        for version in reversed(self.all()):
            self.remove(version)
            yield version
        self.sweep()
        for key in list(self.blobs.keys("pins/")):
            self.blobs.delete(key)
        self.clear_anchor_request()

    def sweep(self) -> None:
        """Frees what a killed publisher left behind. Only under `writing()`."""
        keys = [key for key in self.blobs.keys("v") if folder_version(key.partition("/")[0]) is not None]
        whole = {key.partition("/")[0] for key in keys if key.endswith("/" + FILE_NAME)}
        for key in keys:
            if key.partition("/")[0] not in whole:
                self.blobs.delete(key)

    def pin(self, name: str, version: int) -> None:
        self.blobs.write(f"pins/{name}", str(version).encode())

    def unpin(self, name: str) -> None:
        self.blobs.delete(f"pins/{name}")

    def pinned(self) -> set[int]:
        versions = set()
        for key in list(self.blobs.keys("pins/")):
            try:
                versions.add(int(self.blobs.read(key)))
            except BlobMissing:  # unpinned at this moment
                continue
            except ValueError as error:
                raise StoreUnavailable(
                    f"pin {key} in {self.where} names no version; remove it, so that nothing needed is collected"
                ) from error
        return versions

    def request_anchor(self, reason: str) -> None:
        self.blobs.write(_REQUEST, f"{time.time():.0f} {reason}".encode())

    def anchor_requested(self) -> bool:
        return _REQUEST in self.blobs.keys(_REQUEST)

    def clear_anchor_request(self) -> None:
        self.blobs.delete(_REQUEST)


def _key(version: int, name: str) -> str:
    return f"{folder_name(version)}/{name}"
