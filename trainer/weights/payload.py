"""Safetensors payloads: an anchor is an ordinary checkpoint, a delta one U8 tensor of coded bytes a name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from trainer.weights import codec
from trainer.weights.errors import CorruptPayload, WrongBase
from trainer.weights.manifest import Entry, Manifest
from trainer.weights.tensors import NAMES, RawState, RawTensor


def write_anchor(state: RawState) -> tuple[bytes, dict[str, Entry]]:
    entries = {n: Entry(dtype=t.dtype, shape=t.shape, digest=t.digest(), encoding="raw") for n, t in state.items()}
    return safetensors.torch.save({n: t.tensor() for n, t in state.items()}), entries


def write_delta(base: RawState, new: RawState) -> tuple[bytes, dict[str, Entry], int]:
    """Payload, entries and how many words changed. Names, dtypes and shapes must equal the base's."""
    entries: dict[str, Entry] = {}
    parts: dict[str, torch.Tensor] = {}
    changed = 0
    for name, tensor in new.items():
        old = base[name]
        same = np.array_equal(old.data, tensor.data)
        entries[name] = Entry(
            dtype=tensor.dtype,
            shape=tensor.shape,
            digest=tensor.digest(),
            encoding="same" if same else codec.ENCODING,
        )
        if same:
            continue
        coded = codec.encode(old.data, tensor.data, tensor.word)
        parts[name] = torch.frombuffer(bytearray(coded), dtype=torch.uint8)
        words = np.dtype(f"<u{tensor.word}")
        changed += int(np.count_nonzero(old.data.view(words) != tensor.data.view(words)))
    return safetensors.torch.save(parts), entries, changed


def check(manifest: Manifest, payload: bytes) -> None:
    """Raises CorruptPayload unless these are the bytes that were published."""
    if len(payload) != manifest.payload_bytes or hashlib.sha256(payload).hexdigest() != manifest.payload_digest:
        raise CorruptPayload(
            f"payload of version {manifest.version} has {len(payload)} of {manifest.payload_bytes} bytes or other "
            "content than published; refused, an anchor must answer it"
        )


def read(manifest: Manifest, payload: bytes, base: RawState | None, base_digest: str | None) -> RawState:
    """Decodes a version and proves every tensor. `base` is None for an anchor. Raises WeightRefused."""
    version = manifest.version
    if manifest.kind == "delta" and (base is None or base_digest != manifest.base_digest):
        raise WrongBase(
            f"version {version} is a delta on version {manifest.base_version}, which is not what is at hand"
        )
    check(manifest, payload)
    parts = _deserialize(version, payload)
    coded = {name for name, entry in manifest.tensors.items() if entry.encoding != "same"}
    if parts.keys() != coded:
        raise CorruptPayload(f"payload of version {version} holds other tensors than its manifest lists")
    return {name: _tensor(version, name, entry, parts, base) for name, entry in manifest.tensors.items()}


def _tensor(
    version: int, name: str, entry: Entry, parts: Mapping[str, torch.Tensor], base: RawState | None
) -> RawTensor:
    if entry.encoding == "raw":
        part = parts[name]
        data = part.reshape(-1).view(torch.uint8).numpy()
        tensor = RawTensor(NAMES.get(part.dtype, "unknown"), tuple(part.shape), data)
    else:
        old = (base or {}).get(name)
        if old is None or old.dtype != entry.dtype or old.shape != entry.shape:
            raise WrongBase(f"the base of version {version} has no tensor {name} of {entry.dtype} {entry.shape}")
        if entry.encoding == "same":
            tensor = old
        else:
            coded = parts[name].numpy().tobytes()
            tensor = RawTensor(entry.dtype, entry.shape, codec.decode(old.data, coded, old.word))
    if tensor.digest() != entry.digest:
        raise CorruptPayload(f"tensor {name} of version {version} does not have the digest that was published")
    return tensor


def _deserialize(version: int, payload: bytes) -> dict[str, torch.Tensor]:
    try:
        return safetensors.torch.load(payload)
    except SafetensorError as error:
        raise CorruptPayload(f"payload of version {version} is not a safetensors file: {error}") from error
