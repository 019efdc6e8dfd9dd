"""Sizes and digests of published tensors. Imports no torch, so that rollout workers can read manifests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from trainer.weights.codec import Bytes


def count(shape: tuple[int, ...]) -> int:
    """Number of words of a whole tensor."""
    words = 1
    for side in shape:
        words *= side
    return words


def piece_digest(dtype: str, shape: tuple[int, ...], start: int, data: Bytes) -> str:
    digest = hashlib.sha256(f"{dtype}:{','.join(map(str, shape))}:{start}:".encode())
    digest.update(np.ascontiguousarray(data).data)
    return digest.hexdigest()


def version_digest(digests: Mapping[str, str], aliases: Mapping[str, str]) -> str:
    """One digest for a whole version, from its per-tensor digests."""
    text = json.dumps([sorted(digests.items()), sorted(aliases.items())], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
