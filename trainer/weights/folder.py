"""The weight store on disk: one directory a version, moved into place whole; pins; requests for an anchor.

v000012/weights.safetensors | delta.safetensors    payload, written first
v000012/manifest.json                              written last
pins/<name>                                        a version that garbage collection keeps
anchor-request                                     a subscriber could not follow: next publish is full
.lock                                              held by the one publisher while it writes
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.weights.errors import VersionMissing, WeightError
from trainer.weights.manifest import FILE_NAME, Manifest, folder_name, folder_version, parse


class Folder:
    """Paths, manifests and atomic moves; knows nothing of tensors."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def versions(self) -> list[int]:
        """Published versions, ascending. A directory without a manifest does not count."""
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        found = (folder_version(name) for name in names)
        return sorted(v for v in found if v is not None and (self.path(v) / FILE_NAME).exists())

    def path(self, version: int) -> Path:
        return self.root / folder_name(version)

    def manifest(self, version: int) -> Manifest:
        """Raises VersionMissing or CorruptManifest."""
        try:
            text = (self.path(version) / FILE_NAME).read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise VersionMissing(f"version {version} is not in the weight store {self.root}") from error
        return parse(text, folder_name(version))

    def payload(self, manifest: Manifest) -> bytes:
        try:
            return (self.path(manifest.version) / manifest.payload_name).read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise VersionMissing(f"payload of version {manifest.version} is gone from {self.root}") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclusive right to publish or collect. A second trainer on the same store is refused at once."""
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / ".lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WeightError(f"another process is writing to {self.root}; stop it first") from error
            yield

    def install(self, manifest: Manifest, payload: bytes) -> None:
        """Makes the version visible in one move, replacing what had its number."""
        staging = self.root / f".staging-{uuid.uuid4().hex}"
        staging.mkdir()
        try:
            _write(staging / manifest.payload_name, payload)
            _write(staging / FILE_NAME, manifest.model_dump_json(indent=1).encode())
            _sync(staging)
            target = self.path(manifest.version)
            if target.exists():
                self.remove(manifest.version)
            os.rename(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        _sync(self.root)

    def remove(self, version: int) -> None:
        """Takes a version away: it disappears in one move, then its bytes are freed."""
        grave = self.root / f".removed-{uuid.uuid4().hex}"
        try:
            os.rename(self.path(version), grave)
        except FileNotFoundError:
            return
        shutil.rmtree(grave)

    def sweep(self) -> None:
        """Frees what a killed publisher left behind. Only under `writing()`."""
        for path in self.root.glob(".staging-*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.root.glob(".removed-*"):
            shutil.rmtree(path, ignore_errors=True)

    def pin(self, name: str, version: int) -> None:
        pins = self.root / "pins"
        pins.mkdir(parents=True, exist_ok=True)
        temporary = pins / f".{name}-{uuid.uuid4().hex}"
        temporary.write_text(str(version))
        os.replace(temporary, pins / name)

    def unpin(self, name: str) -> None:
        (self.root / "pins" / name).unlink(missing_ok=True)

    def pinned(self) -> set[int]:
        pins = self.root / "pins"
        if not pins.is_dir():
            return set()
        versions = set()
        for path in pins.iterdir():
            if path.name.startswith("."):
                continue
            try:
                versions.add(int(path.read_text()))
            except FileNotFoundError:  # unpinned at this moment
                continue
        return versions

    def request_anchor(self, reason: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "anchor-request").write_text(reason)

    def anchor_requested(self) -> bool:
        return (self.root / "anchor-request").exists()

    def clear_anchor_request(self) -> None:
        (self.root / "anchor-request").unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
