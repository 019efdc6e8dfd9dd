"""Storage interface of published weights: named objects that appear atomically, in a folder or a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol


class Blobs(Protocol):
    """Objects by key (`v000012/manifest.json`). Any number of processes read; one writes, under `writing()`."""

    @property
    def where(self) -> str:
        """Location, for messages."""
        ...

    def keys(self, prefix: str = "") -> Iterable[str]:
        """Keys with the given prefix, unordered. Raises StoreUnavailable."""
        ...

    def sizes(self, prefix: str = "") -> Mapping[str, int]:
        """Bytes of the objects whose keys have the prefix. Raises StoreUnavailable."""
        ...

    def read(self, key: str) -> bytes:
        """Read an object. Raises BlobMissing, StoreUnavailable."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Write an object durably; readers see either the old or the new object. Raises StoreUnavailable."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object, if it exists. Raises StoreUnavailable."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Exclusive right to publish or collect. Inside the block, `write` and `delete` raise LeaseLost once it is
        lost. Raises StoreBusy at once when another process holds it.
        """
        ...

    def still_writing(self) -> None:
        """Verify the right of `writing()` again, before something becomes visible. Raises LeaseLost."""
        ...
