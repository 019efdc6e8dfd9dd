"""What published weights need of a place to lie in: named objects that appear whole. A folder and a bucket do."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol


class Blobs(Protocol):
    """Objects by key (`v000012/manifest.json`). Any number of processes read; one writes, under `writing()`."""

    @property
    def where(self) -> str:
        """For messages."""
        ...

    def keys(self, prefix: str = "") -> Iterable[str]:
        """Keys that begin with `prefix`, in no order. Raises StoreUnavailable."""
        ...

    def read(self, key: str) -> bytes:
        """Raises BlobMissing, StoreUnavailable."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Durable when it returns; readers see the old object or the new one, whole. Raises StoreUnavailable."""
        ...

    def delete(self, key: str) -> None:
        """Nothing happens when there is none. Raises StoreUnavailable."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Exclusive right to publish or collect, also of what `write` and `delete` do meanwhile: they raise LeaseLost once
        it is lost. Raises StoreBusy at once when another process has it."""
        ...

    def still_writing(self) -> None:
        """Proves the right of `writing()` anew, before something becomes visible. Raises LeaseLost."""
        ...
