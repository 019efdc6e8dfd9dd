"""Sections of a version: consecutive words of some tensors, from no more shards than have them.

A process that needs its part of a version reads the shards that it lies in, of this version and of those that it stands on;
what ranks of the same cut published is one shard each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainer.errors import WeightRefused, WrongBase
from trainer.weights import payload
from trainer.weights.manifest import Manifest
from trainer.weights.tensors import DTYPES, RawState
from trainer.weights.versions import Versions

Spans = Mapping[str, tuple[int, int]]
"""By tensor: the first word, and the one behind the last."""


@dataclass(slots=True)
class Wanted:
    """Notes what somebody reads, to ask for all of it at once."""

    words: dict[str, tuple[int, int]] = field(default_factory=dict)

    def read_into(self, target: Tensor, name: str, offset: tuple[int, ...]) -> None:
        if target.numel():
            start, stop = _span(target, offset)
            first, last = self.words.get(name, (start, stop))
            self.words[name] = min(first, start), max(last, stop)


@dataclass(frozen=True, slots=True)
class Sections:
    """Proven words of one version."""

    manifest: Manifest
    raw: RawState
    bytes_read: int

    def read_into(self, target: Tensor, name: str, offset: tuple[int, ...]) -> None:
        """What `name` has from `offset` on, as much as `target` holds: whole rows. In the dtype of `target`."""
        if not target.numel():
            return
        tensor = self.raw[self.manifest.aliases.get(name, name)]
        if tensor.shape[1:] != tuple(target.shape[1:]) or any(offset[1:]):
            raise ValueError(f"{name} of {tensor.shape} is read by rows, not from {offset} as {tuple(target.shape)}")
        size = tensor.form.size
        start, stop = ((at - tensor.start) * size for at in _span(target, offset))
        words = torch.from_numpy(tensor.data[start:stop]).view(DTYPES[tensor.dtype])
        target.copy_(words.view(target.shape))


def load_sections(store: Versions, version: int, wanted: Spans) -> Sections:
    """Raises VersionMissing, WeightRefused."""
    chain = store.chain(version)
    try:
        return _load(store, chain, wanted)
    except WeightRefused as refusal:
        store.request_anchor(f"version {version} refused: {refusal}")
        raise


def _load(store: Versions, chain: Sequence[Manifest], wanted: Spans) -> Sections:
    newest = chain[-1]
    needed = {newest.aliases.get(name, name): span for name, span in wanted.items()}
    shards: list[list[int]] = []
    for manifest in reversed(chain):
        shards.append(_shards_of(manifest, needed))
        needed = _based(manifest, shards[-1])
    raw: RawState | None = None
    digest: str | None = None
    read = 0
    for manifest, numbers in zip(chain, reversed(shards), strict=True):
        data = store.payloads(manifest, numbers)
        raw, digest = payload.read(manifest, data, raw, digest, shards=numbers), manifest.digest
        read += sum(map(len, data))
    assert raw is not None
    return Sections(newest, raw, read)


def _shards_of(manifest: Manifest, spans: Spans) -> list[int]:
    """Numbers of the shards that have any of these words."""
    found = set()
    for name, (start, stop) in spans.items():
        entry = manifest.tensors.get(name)
        if entry is None or stop > entry.pieces[-1].stop:
            raise WrongBase(f"version {manifest.version} has no tensor {name} of {stop} words: it is of another policy")
        found |= {piece.shard for piece in entry.pieces if piece.start < stop and start < piece.stop}
    return sorted(found)


def _based(manifest: Manifest, shards: Sequence[int]) -> dict[str, tuple[int, int]]:
    """What of the version before has to be there to decode these shards."""
    out = {}
    for name, entry in manifest.tensors.items():
        pieces = [piece for piece in entry.pieces if piece.shard in shards and piece.encoding != "raw"]
        if pieces:
            out[name] = pieces[0].start, pieces[-1].stop
    return out


def _span(target: Tensor, offset: tuple[int, ...]) -> tuple[int, int]:
    """Words that `target` takes from `offset` on."""
    start = offset[0] * math.prod(target.shape[1:]) if offset else 0
    return start, start + target.numel()
