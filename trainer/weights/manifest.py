"""The manifest of one published version: written last, it is what makes the version exist."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.weights.errors import CorruptManifest
from trainer.weights.tensors import DTYPES, version_digest

FILE_NAME = "manifest.json"
_HEX = r"^[0-9a-f]{64}$"


class Entry(BaseModel):
    """One tensor of a version. `digest` is of the decoded tensor, whatever the coding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: str
    shape: tuple[int, ...]
    digest: str = Field(pattern=_HEX)
    encoding: Literal["raw", "same", "xor-planes-zstd"]
    """`same`: unchanged since the base version, so it has no bytes in the payload."""

    @property
    def nbytes(self) -> int:
        size = DTYPES[self.dtype].itemsize
        for side in self.shape:
            size *= side
        return size

    @model_validator(mode="after")
    def _known(self) -> Entry:
        if self.dtype not in DTYPES or any(side < 0 for side in self.shape):
            raise ValueError(f"unknown dtype or shape: {self.dtype} {self.shape}")
        return self


class Manifest(BaseModel):
    """What a version holds and what it stands on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    version: int = Field(ge=0)
    kind: Literal["anchor", "delta"]
    incarnation: str = Field(pattern=r"^[0-9a-f]{32}$")
    """Changes when a published version is replaced by other bytes, so that subscribers notice."""
    digest: str = Field(pattern=_HEX)
    base_version: int | None = None
    base_digest: str | None = Field(default=None, pattern=_HEX)
    payload_digest: str = Field(pattern=_HEX)
    payload_bytes: int = Field(ge=0)
    changed_words: int = Field(default=0, ge=0)
    total_words: int = Field(default=0, ge=0)
    tensors: dict[str, Entry]
    aliases: dict[str, str] = Field(default_factory=dict)
    created_at: float
    """Unix seconds."""

    @property
    def payload_name(self) -> str:
        return "weights.safetensors" if self.kind == "anchor" else "delta.safetensors"

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
        if self.kind == "anchor" and any(entry.encoding != "raw" for entry in self.tensors.values()):
            raise ValueError("an anchor holds raw tensors only")
        if any(name in self.tensors or target not in self.tensors for name, target in self.aliases.items()):
            raise ValueError("an alias names a tensor that is not there")
        if self.digest != version_digest({n: e.digest for n, e in self.tensors.items()}, self.aliases):
            raise ValueError("the version digest is not the digest of its tensors")
        return self


def parse(text: bytes, folder: str) -> Manifest:
    """Reads the manifest of `folder` (`v000012`). Raises CorruptManifest with the folder's name."""
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise CorruptManifest(f"manifest of {folder} is not usable ({reason}); an anchor must replace it") from error
    if folder_name(manifest.version) != folder:
        raise CorruptManifest(f"manifest in {folder} says version {manifest.version}; an anchor must replace it")
    return manifest


def folder_name(version: int) -> str:
    return f"v{version:06d}"


def folder_version(name: str) -> int | None:
    """Version of a folder name, or None for anything else that lies in the store."""
    match = re.fullmatch(r"v(\d{6,})", name)
    return int(match[1]) if match else None
