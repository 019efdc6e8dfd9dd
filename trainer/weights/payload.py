"""Safetensors payloads: an anchor is an ordinary checkpoint, a delta one U8 tensor a coded block.

A piece that is not a whole tensor lies under `name@start`. In a delta, blocks are `block/N` and what could not be coded
against the base (a rank that lost it) is `raw/` and its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from trainer.errors import CorruptPayload, WrongBase
from trainer.weights import codec
from trainer.weights.blocks import gather, in_threads, layout, scatter
from trainer.weights.codec import FORMATS, Bytes, Mode
from trainer.weights.digests import count, piece_digest
from trainer.weights.manifest import Entry, Manifest, Piece, Shard, shard_name
from trainer.weights.shard_manifest import Part, PartTensor
from trainer.weights.tensors import NAMES, RawState, RawTensor


@dataclass(frozen=True)
class Written:
    """One shard, ready to be stored."""

    data: bytes
    part: Part


def write(
    new: RawState,
    digests: Mapping[str, str],
    base: RawState | None,
    *,
    mode: Mode = "small",
    rank: int = 0,
    world: int = 1,
) -> Written:
    """The shard of `rank`: a delta against `base`, or a part of an anchor where that is None."""
    delta = base is not None
    raw: dict[str, torch.Tensor] = {}
    coded: list[str] = []
    tensors: dict[str, PartTensor] = {}
    for name in sorted(new):  # the order of the manifest, from which readers derive the blocks
        tensor = new[name]
        old = (base or {}).get(name)
        encoding: Literal["raw", "same", "delta"] = "delta"
        if old is None or old.place != tensor.place:
            encoding = "raw"
            raw[_raw_key(name, tensor.start, tensor.words == count(tensor.shape), delta=delta)] = tensor.tensor()
        elif np.array_equal(old.data, tensor.data):
            encoding = "same"
        else:
            coded.append(name)
        piece = Piece(shard=rank, start=tensor.start, stop=tensor.stop, encoding=encoding, digest=digests[name])
        tensors[name] = PartTensor(dtype=tensor.dtype, shape=tensor.shape, piece=piece)
    changed = sum(part.numel() for part in raw.values())
    if base is not None and coded:
        blocks, differing = _code([base[name] for name in coded], [new[name] for name in coded], mode)
        raw |= {f"block/{n}": torch.frombuffer(bytearray(block), dtype=torch.uint8) for n, block in enumerate(blocks)}
        changed += differing
    data = safetensors.torch.save(raw)
    name = shard_name("delta" if delta else "anchor", rank, world)
    shard = Shard(name=name, bytes=len(data), digest=hashlib.sha256(data).hexdigest())
    return Written(data, Part(shard=shard, tensors=tensors, changed_words=changed))


def _code(old: Sequence[RawTensor], new: Sequence[RawTensor], mode: Mode) -> tuple[list[bytes], int]:
    """Coded blocks, and how many words differ."""
    blocks = layout([(tensor.dtype, tensor.words) for tensor in new])

    def one(index: int) -> tuple[bytes, int]:
        block = blocks[index]
        form = FORMATS[block.dtype]
        before = gather(block, [tensor.data for tensor in old], form.size)
        after = gather(block, [tensor.data for tensor in new], form.size)
        changed = int(np.count_nonzero(before.view(form.words) != after.view(form.words)))
        return codec.encode(before, after, form, mode), changed

    done = in_threads(one, range(len(blocks)))
    return [payload for payload, _ in done], sum(changed for _, changed in done)


def check(manifest: Manifest, payloads: Sequence[bytes], shards: Sequence[int] | None = None) -> None:
    """Raises CorruptPayload unless these are the bytes that were published: of all shards, or of those numbers."""
    numbers = range(len(manifest.shards)) if shards is None else shards
    for number, data in zip(numbers, payloads, strict=True):
        shard = manifest.shards[number]
        if len(data) != shard.bytes or hashlib.sha256(data).hexdigest() != shard.digest:
            raise CorruptPayload(
                f"payload {shard.name} of version {manifest.version} has {len(data)} of {shard.bytes} bytes or other "
                "content than published; refused, an anchor must answer it"
            )


def read(
    manifest: Manifest,
    payloads: Sequence[bytes],
    base: RawState | None,
    base_digest: str | None,
    *,
    shards: Sequence[int] | None = None,
) -> RawState:
    """Decodes a version next to its base and proves every piece. `base` is None for an anchor.

    With `shards` only what they have is decoded: each tensor from its first such piece to its last, what lies between them
    undefined. `base` need not have more than what these were coded against. Raises WeightRefused.
    """
    version = manifest.version
    if manifest.kind == "delta" and (base is None or base_digest != manifest.base_digest):
        raise WrongBase(
            f"version {version} is a delta on version {manifest.base_version}, which is not what is at hand"
        )
    numbers = range(len(manifest.shards)) if shards is None else shards
    check(manifest, payloads, numbers)
    old = base if manifest.kind == "delta" and base is not None else {}
    pieces = {name: [p for p in entry.pieces if p.shard in numbers] for name, entry in manifest.tensors.items()}
    state = {name: _room(version, name, manifest.tensors[name], found, old) for name, found in pieces.items() if found}
    for number, data in zip(numbers, payloads, strict=True):
        _read_shard(manifest, number, data, old, state)
    _prove(manifest, state, pieces)
    return state


def _room(version: int, name: str, entry: Entry, pieces: Sequence[Piece], base: RawState) -> RawTensor:
    """Where the new words go: fresh memory, or the base's own tensor when nothing in it changed."""
    old = base.get(name)
    start, stop = pieces[0].start, pieces[-1].stop
    on_base = [piece for piece in pieces if piece.encoding != "raw"]
    if on_base:
        if old is None or (old.dtype, old.shape) != (entry.dtype, entry.shape):
            raise WrongBase(f"the base of version {version} has no tensor {name} of {entry.dtype} {entry.shape}")
        if on_base[0].start < old.start or on_base[-1].stop > old.stop:
            raise WrongBase(f"the base of version {version} has not all of tensor {name} at hand")
        if all(piece.encoding == "same" for piece in pieces) and (old.start, old.stop) == (start, stop):
            return old
    size = FORMATS[entry.dtype].size
    fresh = RawTensor(entry.dtype, entry.shape, np.empty((stop - start) * size, np.uint8), start)
    for piece in pieces:
        if piece.encoding == "same" and old is not None:
            _words_of(fresh, piece)[:] = _words_of(old, piece)
    return fresh


def _read_shard(manifest: Manifest, shard: int, data: bytes, base: RawState, state: RawState) -> None:
    """Writes what one shard holds into `state`."""
    version = manifest.version
    parts = _deserialize(version, data)
    mine = [(n, e, p) for n, e in manifest.tensors.items() for p in e.pieces if p.shard == shard]
    coded = [(n, e, p) for n, e, p in mine if p.encoding == "delta"]
    blocks = layout([(entry.dtype, piece.stop - piece.start) for _, entry, piece in coded])
    delta = manifest.kind == "delta"
    raw = {
        _raw_key(n, p.start, p.stop - p.start == count(e.shape), delta=delta): (n, e, p)
        for n, e, p in mine
        if p.encoding == "raw"
    }
    if parts.keys() != raw.keys() | {f"block/{index}" for index in range(len(blocks))}:
        raise CorruptPayload(f"payload of version {version} holds other tensors than its manifest lists")
    for key, (name, entry, piece) in raw.items():
        part = parts[key]
        here = _words_of(state[name], piece)
        if NAMES.get(part.dtype) != entry.dtype or part.numel() * part.element_size() != here.size:
            raise CorruptPayload(f"tensor {name} of version {version} is stored as {part.dtype} {tuple(part.shape)}")
        here[:] = part.reshape(-1).view(torch.uint8).numpy()

    old = [_words_of(base[name], piece) for name, _, piece in coded]
    new = [_words_of(state[name], piece) for name, _, piece in coded]

    def one(index: int) -> None:
        block = blocks[index]
        form = FORMATS[block.dtype]
        before, after = gather(block, old, form.size), gather(block, new, form.size)
        part = parts[f"block/{index}"]
        if part.dtype != torch.uint8:
            raise CorruptPayload(f"block {index} of version {version} is stored as {part.dtype}")
        try:
            codec.decode(before, part.numpy().data, form, after)
        except CorruptPayload as error:
            raise CorruptPayload(f"block {index} of version {version}: {error}") from error
        scatter(block, after, new, form.size)

    in_threads(one, range(len(blocks)))


def _prove(manifest: Manifest, state: RawState, pieces: Mapping[str, Sequence[Piece]]) -> None:
    """Raises CorruptPayload naming the first tensor that is not what was published."""

    def one(item: tuple[str, Entry, Piece]) -> str:
        name, entry, piece = item
        digest = piece_digest(entry.dtype, entry.shape, piece.start, _words_of(state[name], piece))
        return "" if digest == piece.digest else name

    wrong = in_threads(one, [(n, e, p) for n, e in manifest.tensors.items() for p in pieces[n]])
    for name in filter(None, wrong):
        raise CorruptPayload(f"tensor {name} of version {manifest.version} does not have the digest that was published")


def _words_of(tensor: RawTensor, piece: Piece) -> Bytes:
    size = tensor.form.size
    return tensor.data[(piece.start - tensor.start) * size : (piece.stop - tensor.start) * size]


def _raw_key(name: str, start: int, whole: bool, *, delta: bool) -> str:
    key = name if whole else f"{name}@{start}"
    return f"raw/{key}" if delta else key


def _deserialize(version: int, payload: bytes) -> dict[str, torch.Tensor]:
    try:
        return safetensors.torch.load(payload)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:  # what it raises for unknown dtypes differs
        raise CorruptPayload(f"payload of version {version} is not a safetensors file: {error}") from error
