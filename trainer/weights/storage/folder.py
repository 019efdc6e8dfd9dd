"""Objects as files: written beside their place, synced to disk, and moved there in one step."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.errors import BlobMissing, StoreBusy, StoreUnavailable

_TEMPORARY = ".writing-"
_ATTEMPTS = 5


class FolderBlobs:
    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    @property
    def where(self) -> str:
        return str(self.root)

    def keys(self, prefix: str = "") -> Iterator[str]:
        with _named(self.root, "listed"):
            for folder, _, files in os.walk(self.root / prefix.rpartition("/")[0], onerror=_unless_gone):
                place = os.path.relpath(folder, self.root)
                for name in files:
                    key = name if place == "." else f"{place}/{name}"
                    if not name.startswith(".") and key.startswith(prefix):
                        yield key

    def sizes(self, prefix: str = "") -> dict[str, int]:
        found = {}
        for key in self.keys(prefix):
            with _named(self.root / key, "listed"), suppress(FileNotFoundError):  # deleted at this moment
                found[key] = (self.root / key).stat().st_size
        return found

    def read(self, key: str) -> bytes:
        path = self.root / key
        with _named(path, "read"):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError) as error:
                raise BlobMissing(f"{path} does not exist") from error

    def write(self, key: str, data: bytes) -> None:
        path = self.root / key
        with _named(path, "written"):
            for _ in range(_ATTEMPTS - 1):
                # Ranks write without the lock: who takes or leaves it cleans up, and cannot tell theirs from a dead one's.
                with suppress(FileNotFoundError):
                    return _write(path, data)
            _write(path, data)

    def delete(self, key: str) -> None:
        path = self.root / key
        with _named(path, "removed"):
            path.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with _named(self.root, "written"):
            self.root.mkdir(parents=True, exist_ok=True)
            lock = open(self.root / ".lock", "a")  # noqa: SIM115 - closed below, where it is given back
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreBusy(f"another process is writing to {self.root}; stop it first") from error
            for left_by_a_kill in self.root.glob(f"v*/{_TEMPORARY}*"):
                left_by_a_kill.unlink(missing_ok=True)
            yield
            for folder in self.root.glob("v*"):
                with suppress(OSError):  # what is not empty stays
                    folder.rmdir()

    def still_writing(self) -> None:
        """The system takes the lock from none but the dead."""


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(_TEMPORARY + uuid.uuid4().hex)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


@contextmanager
def _named(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"weights at {path} could not be {verb}: {error.strerror or error}; free space there or fix its permissions"
        ) from error


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
