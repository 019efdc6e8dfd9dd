"""One rank's contribution to a version, and the composition of contributions into a manifest."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from trainer.errors import WeightError
from trainer.weights.digests import version_digest
from trainer.weights.manifest import Entry, Manifest, Model, Piece, Shard


class PartTensor(Model):
    """One rank's piece of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    piece: Piece


class Part(Model):
    shard: Shard
    tensors: dict[str, PartTensor]
    aliases: dict[str, str] = {}
    changed_words: int = 0
    token: str = ""
    """Token of the plan that this part answers, where several ranks publish."""


def compose(
    version: int, incarnation: str, base: Manifest | None, parts: Sequence[Part], aliases: Mapping[str, str]
) -> Manifest:
    """Compose the manifest from every rank's part, rank 0 first. Raises WeightError when they do not form a full state."""
    try:
        tensors = {}
        for name in sorted({name for part in parts for name in part.tensors}):
            found = [part.tensors[name] for part in parts if name in part.tensors]
            if len({(tensor.dtype, tensor.shape) for tensor in found}) > 1:
                raise WeightError(f"ranks publish {name} of version {version} with different dtypes or shapes")
            pieces = sorted((tensor.piece for tensor in found), key=lambda piece: piece.start)
            tensors[name] = Entry(dtype=found[0].dtype, shape=found[0].shape, pieces=tuple(pieces))
        return Manifest(
            version=version,
            kind="delta" if base else "anchor",
            incarnation=incarnation,
            digest=version_digest({name: entry.digest for name, entry in tensors.items()}, aliases),
            base_version=base.version if base else None,
            base_digest=base.digest if base else None,
            shards=tuple(part.shard for part in parts),
            changed_words=sum(part.changed_words for part in parts) if base else 0,
            total_words=sum(entry.pieces[-1].stop for entry in tensors.values()) if base else 0,
            tensors=tensors,
            aliases=dict(aliases),
            created_at=time.time(),
        )
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise WeightError(
            f"version {version} is not whole ({reason}); publish every tensor once, whole or in slices"
        ) from error
