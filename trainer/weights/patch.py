"""A version step as overwrites of live weights: positions and new words, made before the pause, written under it.

The codec's steps are relative and are decoded next to their base, once. An overwrite is absolute: one that broke off
half way is simply written again, and twice is the same as once. Works on whichever device the weights live.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from trainer.errors import WrongBase
from trainer.weights.blocks import in_threads
from trainer.weights.subscriber import Mirror

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Patch:
    version: int
    words: dict[str, tuple[torch.Tensor, torch.Tensor]]
    """By tensor name: flat positions (int64), and the words that belong there as integers of their width."""

    @property
    def changed(self) -> int:
        return sum(positions.numel() for positions, _ in self.words.values())

    def to(self, device: torch.device | str) -> Patch:
        """Staged where the weights are, still before the pause."""
        moved = {name: (p.to(device), w.to(device)) for name, (p, w) in self.words.items()}
        return Patch(self.version, moved)

    def apply(self, live: Mapping[str, torch.Tensor]) -> None:
        """Overwrites `live` in place. Its tensors are contiguous and of the published dtypes."""
        with torch.no_grad():
            for name, (positions, words) in self.words.items():
                live[name].view(-1).view(words.dtype)[positions] = words


def between(old: Mirror, new: Mirror) -> Patch:
    """What leads from the policy of one proven version to that of another, over any number of steps. Raises WrongBase."""

    def one(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        before, after = old.raw.get(name), new.raw[name]
        if before is None or before.place != after.place:
            raise WrongBase(f"version {old.version} has no tensor {name} like that of {new.version}; load it whole")
        dtype = after.form.words
        positions = np.flatnonzero(before.data.view(dtype) != after.data.view(dtype))
        words = after.data.view(f"<i{dtype.itemsize}" if dtype.itemsize > 1 else "u1")[positions]
        return torch.from_numpy(positions), torch.from_numpy(words)

    changed = [name for name, tensor in new.policy.items() if old.raw.get(name) is not tensor]
    return Patch(new.version, dict(zip(changed, in_threads(one, changed), strict=True)))
