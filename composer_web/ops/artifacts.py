"""Artifact store: compressed blobs by key, in a local folder. Rows hold the keys.

Keys are relative paths of plain names (`groups/12/3/0.json.zst`). A blob appears whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import zstandard
from pydantic import BaseModel, ValidationError

from composer_web.env import env

KEY = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
MAX_BYTES = 256 << 20
FRAME_HEADER = 18
"""Bytes of the longest header of a zstd frame (RFC 8878)."""
M = TypeVar("M", bound=BaseModel)


class ArtifactError(Exception):
    """A blob is missing, unreadable or cannot be written. The message says which and what to do."""


class ArtifactStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, key: str) -> Path:
        """File of `key`. Raises ArtifactError for a key that is not a plain relative path."""
        if len(key) > 200 or not KEY.fullmatch(key):
            raise ArtifactError(f"artifact key {key!r} is not a relative path of plain names")
        return self.root / key

    def put(self, key: str, content: bytes) -> int:
        """Write a blob (compressed) in one atomic rename; returns its bytes on disk."""
        path = self.path(key)
        data = zstandard.ZstdCompressor(level=3).compress(content)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as file:
                try:
                    file.write(data)
                    file.flush()
                    os.replace(file.name, path)
                except OSError:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            raise ArtifactError(
                f"cannot write {key} below {self.root}: {error.strerror}; free disk space and retry"
            ) from error
        return len(data)

    def get(self, key: str) -> bytes:
        """The blob's content, at most MAX_BYTES. Raises ArtifactError."""
        path = self.path(key)
        try:
            data = path.read_bytes()
            if zstandard.get_frame_parameters(data).content_size > MAX_BYTES:
                raise ArtifactError(f"artifact {key} cannot be read: it unpacks to more than {MAX_BYTES} bytes")
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_BYTES)
        except FileNotFoundError as error:
            raise ArtifactError(
                f"artifact {key} is not in {self.root}; it was removed or written on another machine"
            ) from error
        except (OSError, zstandard.ZstdError) as error:
            raise ArtifactError(f"artifact {key} cannot be read: {error}") from error

    def exists(self, key: str) -> bool:
        return self.path(key).is_file()

    def unpacked_bytes(self, key: str) -> int:
        """Size of the blob's content. Raises ArtifactError."""
        try:
            with self.path(key).open("rb") as file:
                return zstandard.get_frame_parameters(file.read(FRAME_HEADER)).content_size
        except FileNotFoundError as error:
            raise ArtifactError(f"artifact {key} is not in {self.root}; it was removed") from error
        except (OSError, zstandard.ZstdError) as error:
            raise ArtifactError(f"artifact {key} cannot be read: {error}") from error

    def stream(self, key: str) -> Iterator[bytes]:
        """The blob's content in pieces, whatever its size. Raises ArtifactError before the first piece, or when damaged."""
        self.unpacked_bytes(key)

        def pieces() -> Iterator[bytes]:
            try:
                with self.path(key).open("rb") as file:
                    yield from zstandard.ZstdDecompressor().read_to_iter(file)
            except (OSError, zstandard.ZstdError) as error:
                raise ArtifactError(f"artifact {key} cannot be read: {error}") from error

        return pieces()

    def put_model(self, key: str, model: BaseModel) -> int:
        return self.put(key, model.model_dump_json().encode())

    def get_model(self, key: str, kind: type[M]) -> M:
        """The blob parsed as `kind`. Raises ArtifactError."""
        try:
            return kind.model_validate_json(self.get(key))
        except ValidationError as error:
            raise ArtifactError(f"artifact {key} is not a {kind.__name__}: {error.error_count()} errors") from error

    def remove_tree(self, prefix: str) -> None:
        """Delete every blob below `prefix`; nothing there is fine."""
        shutil.rmtree(self.path(prefix), ignore_errors=True)

    def children(self, prefix: str) -> list[str]:
        """Names directly below `prefix`."""
        path = self.path(prefix)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []


@lru_cache(maxsize=1)
def artifacts() -> ArtifactStore:
    """The store of this installation."""
    return ArtifactStore(env().data / "artifacts")
