"""Artifact store: compressed blobs by key, in a local folder. Database rows hold the keys.

Keys are relative paths of plain names (`groups/12/3/0.json.zst`). Writes of blobs are atomic.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import zstandard
from pydantic import BaseModel, ValidationError

from composer_web.env import env

KEY = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
MAX_BYTES = 256 << 20
MAX_GROUP_BYTES = 2 << 30
"""Limit for a serialised training group, which may include the routed experts of every token."""
FRAME_HEADER = 18
"""Maximum size of a zstd frame header (RFC 8878)."""
CHUNK_BYTES = 1 << 20
M = TypeVar("M", bound=BaseModel)


class ArtifactError(Exception):
    """A blob is missing, unreadable or cannot be written. The message names the blob and the remedy."""


class ArtifactTooLarge(ArtifactError):
    """A blob is larger than what may be read back. It is not stored, and the same content never will be."""


class ArtifactUnusable(ArtifactError):
    """A blob is missing from a store that answers, or its content is damaged."""


class ArtifactStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, key: str) -> Path:
        """File of `key`. Raises ArtifactError for a key that is not a plain relative path."""
        if len(key) > 200 or not KEY.fullmatch(key):
            raise ArtifactError(f"artifact key {key!r} is not a relative path of plain names")
        return self.root / key

    def put(self, key: str, content: bytes, *, max_bytes: int | None = None) -> int:
        """Write a compressed blob atomically. Returns its size on disk. Raises ArtifactTooLarge for more than `max_bytes`
        (default MAX_BYTES), which `get` would refuse, and ArtifactError."""
        path, max_bytes = self.path(key), MAX_BYTES if max_bytes is None else max_bytes
        if len(content) > max_bytes:
            raise ArtifactTooLarge(
                f"{key} is not stored: its {len(content):,} bytes are more than the {max_bytes:,} that can be read back"
            )
        data = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(content)
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

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Content of the blob, at most `max_bytes` (default MAX_BYTES). Raises ArtifactError."""
        path, max_bytes = self.path(key), MAX_BYTES if max_bytes is None else max_bytes
        try:
            data = path.read_bytes()
            if zstandard.get_frame_parameters(data).content_size > max_bytes:
                raise ArtifactError(f"artifact {key} cannot be read: it unpacks to more than {max_bytes} bytes")
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=max_bytes)
        except FileNotFoundError as error:
            raise ArtifactError(
                f"artifact {key} is not in {self.root}; it was removed or written on another machine"
            ) from error
        except (OSError, zstandard.ZstdError) as error:
            raise ArtifactError(f"artifact {key} cannot be read: {error}") from error

    def verify(self, key: str, *, max_bytes: int) -> None:
        """Read the blob to its end without keeping it. Raises ArtifactUnusable if `get` would refuse it now and later,
        ArtifactError if the store does not answer."""
        path, reader = self.path(key), zstandard.ZstdDecompressor().decompressobj()
        try:
            with path.open("rb") as file:
                begin = file.read(FRAME_HEADER)
                if zstandard.get_frame_parameters(begin).content_size > max_bytes:
                    raise ArtifactUnusable(f"artifact {key} unpacks to more than {max_bytes} bytes")
                for piece in chain([begin], iter(partial(file.read, CHUNK_BYTES), b"")):
                    reader.decompress(piece)
        except zstandard.ZstdError as error:
            raise ArtifactUnusable(f"artifact {key} is damaged: {error}") from error
        except OSError as error:
            gone = isinstance(error, FileNotFoundError) and self.root.is_dir()
            raise (ArtifactUnusable if gone else ArtifactError)(f"artifact {key} cannot be read: {error}") from error
        if not reader.eof:
            raise ArtifactUnusable(f"artifact {key} is cut off")

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
        """Content of the blob in chunks, at any size. Raises ArtifactError before the first chunk, or at damaged
        data."""
        self.unpacked_bytes(key)

        def pieces() -> Iterator[bytes]:
            try:
                with self.path(key).open("rb") as file:
                    yield from zstandard.ZstdDecompressor().read_to_iter(file)
            except (OSError, zstandard.ZstdError) as error:
                raise ArtifactError(f"artifact {key} cannot be read: {error}") from error

        return pieces()

    def put_model(self, key: str, model: BaseModel, *, max_bytes: int | None = None) -> int:
        """Write a blob for `get_model`. Raises ArtifactError, also if `get_model` would reject its size."""
        content = model.model_dump_json().encode()
        try:
            return self.put(key, content, max_bytes=max_bytes)
        except ArtifactTooLarge as error:
            raise ArtifactTooLarge(f"{error}; use shorter contexts or fewer rollouts a group") from error

    def get_model(self, key: str, kind: type[M], *, max_bytes: int | None = None) -> M:
        """The blob parsed as `kind`. Raises ArtifactError."""
        try:
            return kind.model_validate_json(self.get(key, max_bytes=max_bytes))
        except ValidationError as error:
            raise ArtifactError(f"artifact {key} is not a {kind.__name__}: {error.error_count()} errors") from error

    def remove_tree(self, prefix: str) -> None:
        """Delete every blob below `prefix`, if any."""
        shutil.rmtree(self.path(prefix), ignore_errors=True)

    def children(self, prefix: str) -> list[str]:
        """Names directly below `prefix`."""
        path = self.path(prefix)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []


@lru_cache(maxsize=1)
def artifacts() -> ArtifactStore:
    """Artifact store of this installation."""
    return ArtifactStore(env().data / "artifacts")
