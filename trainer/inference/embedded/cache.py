"""KV cache of one deployment: fixed rows ("slots") of one tensor.

Layout [slots, layers, 2 (keys, values), length, kv_heads, head_dim]: a sequence's keys in one layer are contiguous, and
so are its
values, so attention reads sequentially. The CPU commits memory on first write, one huge page at a time (small pages are
faster to
get and slower to read); `prepare` does this before a request has to wait for it. Other devices allocate all of it at
once. The
experts of cached tokens are only reported, never computed with, so they stay on the CPU.
"""

from __future__ import annotations

import numpy as np
import torch

from trainer.inference.embedded.devices import CPU
from trainer.routed_experts import Experts

AHEAD_BYTES = 32 << 20
"""Memory of one deployment that is prepared for future sequences. Larger slots are not prepared: prefill with such a
policy
takes so long that the kernel's clearing is negligible.
"""


class KVCache:
    def __init__(
        self,
        slots: int,
        layers: int,
        length: int,
        kv_heads: int,
        head_dim: int,
        routed: tuple[int, int] | None = None,
        device: torch.device = CPU,
    ) -> None:
        """`routed`: MoE layers and experts per token, for mixture-of-experts policies."""
        self.slots = slots
        self.layers = layers
        self.length = length
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.layer_rows, self.slot_rows = 2 * length, layers * 2 * length
        sizes = (slots, layers, 2, length, kv_heads, head_dim)
        # numpy asks the kernel for zero pages; torch.zeros would write, and so commit, all of them.
        whole = np.zeros(sizes if device == CPU else (0, *sizes[1:]), np.float32)
        self.data = torch.from_numpy(whole) if device == CPU else torch.zeros(sizes, device=device)
        self.rows = whole.reshape(-1, kv_heads * head_dim)
        """Rows of one token's keys (or values) in one layer, for compiled loops, which exist on the CPU only."""
        self.experts: Experts | None = np.zeros((slots, length, *routed), np.uint16) if routed else None
        """Routed experts of each cached token; they belong to its keys and values."""
        self._rows = self.data.view(-1, kv_heads * head_dim)
        of_experts = self.experts[0].nbytes if self.experts is not None else 0
        slot_bytes = self.slot_rows * kv_heads * head_dim * self.data.element_size() + of_experts
        self.ahead = AHEAD_BYTES // slot_bytes if device == CPU else 0
        """Slots prepared in advance."""
        self._ready = [0] * slots
        """Prepared layers of each slot."""

    def prepare(self, slot: int) -> bool:
        """Commit memory for the next layer of an empty slot. False: all is committed."""
        layer = self._ready[slot]
        if layer == self.layers:
            return False
        self.data[slot, layer].zero_()  # other threads go on meanwhile
        if layer == 0 and self.experts is not None:
            self.experts[slot] = 0
        self._ready[slot] += 1
        return True

    def records(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Row numbers [N] of the keys in layer 0; layer l is `l * layer_rows` further, values `length`."""
        return slots * self.slot_rows + positions

    def write(self, layer: int, records: torch.Tensor, keys_NE: torch.Tensor, values_NE: torch.Tensor) -> None:
        at = records + layer * self.layer_rows
        self._rows.index_copy_(0, at, keys_NE)
        self._rows.index_copy_(0, at + self.length, values_NE)

    def read(self, layer: int, slots: slice, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [slots, kv_heads, length, head_dim], as views."""
        part = self.data[slots, layer, :, :length]
        return part[:, 0].transpose(1, 2), part[:, 1].transpose(1, 2)

    def copy(self, source: int, target: int, length: int) -> None:
        self.data[target, :, :, :length] = self.data[source, :, :, :length]
        if self.experts is not None:
            self.experts[target, :length] = self.experts[source, :length]

    def swap(self, a: int, b: int, length_a: int, length_b: int) -> None:
        held = self.data[a, :, :, :length_a].clone()
        held_experts = self.experts[a, :length_a].copy() if self.experts is not None else None
        self.copy(b, a, length_b)
        self.data[b, :, :, :length_a] = held
        if self.experts is not None and held_experts is not None:
            self.experts[b, :length_a] = held_experts
