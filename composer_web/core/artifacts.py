"""Artifact store: compressed blobs by key, in a folder or an S3-compatible bucket. Database rows hold the keys.

Keys are relative paths of plain names (`groups/12/3/0.json.zst`). Writes of blobs are atomic. obstore speaks to the folder
or the bucket; credentials, region and endpoint of a bucket are its variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL …).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import obstore
import zstandard
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, S3Store
from pydantic import BaseModel, ValidationError

from composer_web.env import env

KEY = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
MAX_BYTES = 256 << 20
MAX_GROUP_BYTES = 2 << 30
"""Limit for a serialised training group, which may include the routed experts of every token."""
FRAME_HEADER = 18
"""Maximum size of a zstd frame header (RFC 8878)."""
CHUNK_BYTES = 1 << 20
CONNECT, SILENCE, WHOLE = timedelta(seconds=5), timedelta(seconds=30), timedelta(minutes=10)
"""Limits for a request to a bucket: to connect, between two packets, and in all."""
RETRYING = timedelta(minutes=1)
"""No attempt begins later than this after the first."""
M = TypeVar("M", bound=BaseModel)


class ArtifactError(Exception):
    """A blob is missing, unreadable or cannot be written. The message names the blob and the remedy."""


class ArtifactTooLarge(ArtifactError):
    """A blob is larger than what may be read back. It is not stored, and the same content never will be."""


class ArtifactUnusable(ArtifactError):
    """A blob is missing from a store that answers, or its content is damaged."""


class ArtifactStore:
    def __init__(self, place: Path | str) -> None:
        """`place`: a folder, or `s3://bucket/prefix`."""
        self.place = place

    @property
    def _store(self) -> ObjectStore:
        """Raises FileNotFoundError where the folder does not exist (yet)."""
        if isinstance(self.place, Path) and not self.place.is_dir():
            raise FileNotFoundError(f"{self.place} does not exist")
        return _folder(self.place) if isinstance(self.place, Path) else _bucket(self.place)

    def problem(self) -> str:
        """Why the store does not answer, else empty. A bucket that does not exist and an NFS that is not mounted miss
        every blob; that must not read as a lost one."""
        try:
            store = self._store if isinstance(self.place, Path) else _bucket(self.place, patient=False)
            obstore.list_with_delimiter(store, "none")
        except (BaseError, OSError) as error:
            return _first_line(error)
        return ""

    def checked(self, key: str) -> str:
        """Raises ArtifactError for a key that is not a plain relative path."""
        if len(key) > 200 or not KEY.fullmatch(key):
            raise ArtifactError(f"artifact key {key!r} is not a relative path of plain names")
        return key

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Raises ArtifactUnusable for a blob that is damaged or that a store that answers lacks, else ArtifactError."""
        try:
            yield
        except FileNotFoundError as error:
            raise (ArtifactError if self.problem() else ArtifactUnusable)(
                f"artifact {key} is not in {self.place}; it was removed or written on another machine"
            ) from error
        except zstandard.ZstdError as error:
            raise ArtifactUnusable(f"artifact {key} cannot be read, it is damaged: {error}") from error
        except (BaseError, OSError) as error:
            raise ArtifactError(f"artifact {key} cannot be read: {_first_line(error)}") from error

    def put(self, key: str, content: bytes, *, max_bytes: int | None = None) -> int:
        """Write a compressed blob atomically. Returns its stored size. Raises ArtifactTooLarge for more than `max_bytes`
        (default MAX_BYTES), which `get` would refuse, and ArtifactError."""
        key, max_bytes = self.checked(key), MAX_BYTES if max_bytes is None else max_bytes
        if len(content) > max_bytes:
            raise ArtifactTooLarge(
                f"{key} is not stored: its {len(content):,} bytes are more than the {max_bytes:,} that can be read back"
            )
        data = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(content)
        try:
            if isinstance(self.place, Path):
                self.place.mkdir(parents=True, exist_ok=True)
            obstore.put(self._store, key, data)
        except (BaseError, OSError) as error:
            remedy = (
                "free disk space" if isinstance(self.place, Path) else "check the bucket, its rights and the network"
            )
            raise ArtifactError(
                f"cannot write {key} below {self.place}: {_first_line(error)}; {remedy} and retry"
            ) from error
        return len(data)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Content of the blob, at most `max_bytes` (default MAX_BYTES). Raises ArtifactError."""
        key, max_bytes = self.checked(key), MAX_BYTES if max_bytes is None else max_bytes
        with self._reading(key):
            data = memoryview(obstore.get(self._store, key).bytes())
            if zstandard.get_frame_parameters(data).content_size > max_bytes:
                raise ArtifactUnusable(f"artifact {key} cannot be read: it unpacks to more than {max_bytes} bytes")
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=max_bytes)

    def verify(self, key: str, *, max_bytes: int) -> None:
        """Read the blob to its end without keeping it. Raises ArtifactUnusable if `get` would refuse it now and later,
        ArtifactError if the store does not answer."""
        if self.unpacked_bytes(key) > max_bytes:
            raise ArtifactUnusable(f"artifact {key} unpacks to more than {max_bytes} bytes")
        reader = zstandard.ZstdDecompressor().decompressobj()
        with self._reading(key):
            for piece in obstore.get(self._store, key).stream(min_chunk_size=CHUNK_BYTES):
                reader.decompress(memoryview(piece))
        if not reader.eof:
            raise ArtifactUnusable(f"artifact {key} is cut off")

    def exists(self, key: str) -> bool:
        """Raises ArtifactError."""
        with self._reading(self.checked(key)):
            try:
                obstore.head(self._store, key)
            except FileNotFoundError:
                return False
            return True

    def unpacked_bytes(self, key: str) -> int:
        """Size of the blob's content. Raises ArtifactError."""
        with self._reading(self.checked(key)):
            begin = obstore.get_range(self._store, key, start=0, length=FRAME_HEADER)
            return zstandard.get_frame_parameters(memoryview(begin)).content_size

    def stream(self, key: str) -> Iterator[bytes]:
        """Content of the blob in chunks, at any size. Raises ArtifactError before the first chunk, or at damaged
        data."""
        size = self.unpacked_bytes(key)

        def pieces() -> Iterator[bytes]:
            left = size
            with self._reading(key):
                for piece in zstandard.ZstdDecompressor().read_to_iter(_File(self._store, key)):
                    left -= len(piece)
                    yield piece
            if left:
                raise ArtifactUnusable(f"artifact {key} is cut off")

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
        """Delete every blob below `prefix`, if any. Raises ArtifactError."""
        with self._reading(self.checked(prefix)), suppress(FileNotFoundError):
            for found in obstore.list(self._store, f"{prefix}/"):
                obstore.delete(self._store, [blob["path"] for blob in found])

    def sizes(self, prefix: str) -> dict[str, int]:
        """Stored bytes of every blob below `prefix`, by key. Raises ArtifactError."""
        with self._reading(self.checked(prefix)), suppress(FileNotFoundError):
            return {blob["path"]: blob["size"] for found in obstore.list(self._store, f"{prefix}/") for blob in found}
        return {}

    def remove(self, keys: Iterable[str]) -> None:
        """Delete blobs, as far as they exist. Raises ArtifactError."""
        for key in keys:
            with self._reading(self.checked(key)), suppress(FileNotFoundError):
                obstore.delete(self._store, key)

    def children(self, prefix: str) -> list[str]:
        """Names directly below `prefix`. Raises ArtifactError."""
        with self._reading(self.checked(prefix)), suppress(FileNotFoundError):
            found = obstore.list_with_delimiter(self._store, f"{prefix}/")
            paths = [*found["common_prefixes"], *(blob["path"] for blob in found["objects"])]
            return sorted(path.rpartition("/")[2] for path in paths)
        return []


class _File(BytesIO):
    """A blob to read from. zstandard takes what `read` returns for bytes, which obstore's own are not."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._reader = obstore.open_reader(store, key, buffer_size=CHUNK_BYTES)

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self._reader.read(size))


@lru_cache(maxsize=8)
def _folder(place: Path) -> LocalStore:
    return LocalStore(place, automatic_cleanup=True)


@lru_cache(maxsize=8)
def _bucket(place: str, *, patient: bool = True) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    return S3Store.from_url(
        place,
        config={"endpoint": endpoint} if endpoint else {},
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": CONNECT,
            "read_timeout": SILENCE if patient else CONNECT,
            "timeout": WHOLE,
        },
        retry_config={"max_retries": 3 if patient else 0, "retry_timeout": RETRYING},
    )


def _first_line(error: Exception) -> str:
    """obstore appends the whole chain of its error."""
    return str(error).partition("\n")[0]


@lru_cache(maxsize=1)
def artifacts() -> ArtifactStore:
    """Artifact store of this installation."""
    return ArtifactStore(env().artifact_store or env().data / "artifacts")
