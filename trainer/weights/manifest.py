"""The manifest of one published version. It is written last, and its existence makes the version exist."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.errors import CorruptManifest
from trainer.weights.codec import FORMATS
from trainer.weights.digests import count, version_digest

FILE_NAME = "manifest.json"
_HEX = r"^[0-9a-f]{64}$"


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Piece(Model):
    """Consecutive words of one tensor, as one rank published them. `digest` is of the decoded words."""

    shard: int = Field(ge=0)
    start: int = Field(ge=0)
    stop: int = Field(ge=0)
    encoding: Literal["raw", "same", "delta"]
    """`same`: unchanged since the base version, so the payload holds no bytes for it."""
    digest: str = Field(pattern=_HEX)


class Entry(Model):
    """One tensor of a version: its pieces, in order and without a hole."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...] = Field(min_length=1)

    @property
    def digest(self) -> str:
        """Digest of the whole tensor. It depends on the sharding: different shards count as different weights, which is
        safe."""
        if len(self.pieces) == 1:
            return self.pieces[0].digest
        return hashlib.sha256(":".join(piece.digest for piece in self.pieces).encode()).hexdigest()

    @model_validator(mode="after")
    def _known(self) -> Entry:
        if self.dtype not in FORMATS or any(side < 0 for side in self.shape):
            raise ValueError(f"unknown dtype or shape: {self.dtype} {self.shape}")
        at = 0
        for piece in self.pieces:
            if piece.start != at or piece.stop < at:
                raise ValueError(f"pieces of a tensor leave a hole or overlap at word {at}")
            at = piece.stop
        if at != count(self.shape):
            raise ValueError(f"pieces of a tensor end at word {at} of {count(self.shape)}")
        return self


class Shard(Model):
    """One payload file: what one rank wrote."""

    name: str = Field(pattern=r"^(weights|delta)(-\d{5}-of-\d{5})?\.safetensors$")
    bytes: int = Field(ge=0)
    digest: str = Field(pattern=_HEX)


class Manifest(Model):
    """The contents of a version, and its base."""

    format: Literal[2] = 2
    version: int = Field(ge=0)
    kind: Literal["anchor", "delta"]
    incarnation: str = Field(pattern=r"^[0-9a-f]{32}$")
    """Changes when a published version is replaced by other bytes, so that subscribers notice."""
    digest: str = Field(pattern=_HEX)
    base_version: int | None = None
    base_digest: str | None = Field(default=None, pattern=_HEX)
    shards: tuple[Shard, ...] = Field(min_length=1)
    changed_words: int = Field(default=0, ge=0)
    total_words: int = Field(default=0, ge=0)
    tensors: dict[str, Entry]
    aliases: dict[str, str] = Field(default_factory=dict)
    created_at: float
    """Unix seconds."""

    @property
    def payload_name(self) -> str:
        """First payload file; the only one where one process publishes."""
        return self.shards[0].name

    @property
    def payload_bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def density(self) -> float:
        """Share of words that changed since the base; 1.0 for an anchor."""
        return self.changed_words / self.total_words if self.kind == "delta" and self.total_words else 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        if (self.kind == "delta") != (self.base_version is not None and self.base_digest is not None):
            raise ValueError("a delta, and only a delta, names its base version and digest")
        if self.base_version is not None and self.base_version >= self.version:
            raise ValueError(f"version {self.version} cannot stand on version {self.base_version}")
        pieces = [piece for entry in self.tensors.values() for piece in entry.pieces]
        if self.kind == "anchor" and any(piece.encoding != "raw" for piece in pieces):
            raise ValueError("an anchor holds raw tensors only")
        if any(piece.shard >= len(self.shards) for piece in pieces):
            raise ValueError("a tensor lies in a shard that is not listed")
        if len({shard.name for shard in self.shards}) != len(self.shards):
            raise ValueError("two shards have one name")
        if any(name in self.tensors or target not in self.tensors for name, target in self.aliases.items()):
            raise ValueError("an alias names a tensor that is not there")
        if self.digest != version_digest({n: e.digest for n, e in self.tensors.items()}, self.aliases):
            raise ValueError("the version digest is not the digest of its tensors")
        return self


def parse(text: bytes, folder: str) -> Manifest:
    """Parse the manifest of `folder` (`v000012`). Raises CorruptManifest with the folder's name."""
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise CorruptManifest(f"manifest of {folder} is not usable ({reason}); an anchor must replace it") from error
    if folder_name(manifest.version) != folder:
        raise CorruptManifest(f"manifest in {folder} says version {manifest.version}; an anchor must replace it")
    return manifest


def shard_name(kind: Literal["anchor", "delta"], rank: int, world: int) -> str:
    part = f"-{rank + 1:05d}-of-{world:05d}" if world > 1 else ""
    return f"{'weights' if kind == 'anchor' else 'delta'}{part}.safetensors"


def folder_name(version: int) -> str:
    return f"v{version:06d}"


def folder_version(name: str) -> int | None:
    """Version of a folder name; None for any other entry of the store."""
    match = re.fullmatch(r"v(\d{6,})", name)
    return int(match[1]) if match else None
