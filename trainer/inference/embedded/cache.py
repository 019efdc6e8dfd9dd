"""Keys and values of all sequences of one deployment, as fixed rows ("slots") of one tensor.

Layout [slots, layers, length, 2 (key, value), kv_heads, head_dim]: a token's key and value of one layer are
one contiguous record, so writing a packed batch is one indexed copy, and moving a sequence to another slot
is one copy. Memory is committed by the kernel only where it is written.
"""

from __future__ import annotations

import numpy as np
import torch

from trainer.replay.wire import Experts


class KVCache:
    def __init__(
        self, slots: int, layers: int, length: int, kv_heads: int, head_dim: int, routed: tuple[int, int] | None = None
    ) -> None:
        """`routed`: layers with experts and experts a token, for policies that have any."""
        self.slots = slots
        self.layers = layers
        self.length = length
        # numpy asks the kernel for zero pages; torch.zeros would write, and so commit, all of them.
        self.data = torch.from_numpy(np.zeros((slots, layers, length, 2, kv_heads, head_dim), np.float32))
        self.experts: Experts | None = np.zeros((slots, length, *routed), np.uint16) if routed else None
        """The experts that each cached token was routed to: they belong to its keys and values."""
        self._records = self.data.view(slots * layers * length, 2 * kv_heads * head_dim)

    def records(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Record numbers [N] of layer 0; layer l is `l * length` further."""
        return slots * (self.layers * self.length) + positions

    def write(self, layer: int, records: torch.Tensor, keys_values: torch.Tensor) -> None:
        """keys_values [N, 2 * kv_heads * head_dim]."""
        self._records.index_copy_(0, records + layer * self.length, keys_values)

    def read(self, layer: int, slots: slice, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [slots, kv_heads, length, head_dim], as views."""
        part = self.data[slots, layer, :length]
        return part[:, :, 0].transpose(1, 2), part[:, :, 1].transpose(1, 2)

    def copy(self, source: int, target: int, length: int) -> None:
        self.data[target, :, :length] = self.data[source, :, :length]
        if self.experts is not None:
            self.experts[target, :length] = self.experts[source, :length]

    def swap(self, a: int, b: int, length_a: int, length_b: int) -> None:
        held = self.data[a, :, :length_a].clone()
        held_experts = self.experts[a, :length_a].copy() if self.experts is not None else None
        self.copy(b, a, length_b)
        self.data[b, :, :length_a] = held
        if self.experts is not None and held_experts is not None:
            self.experts[b, :length_a] = held_experts
