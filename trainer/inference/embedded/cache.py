"""Keys and values of all sequences of one deployment, as fixed rows ("slots") of one tensor.

Layout [slots, layers, 2 (keys, values), length, kv_heads, head_dim]: the keys of a sequence in one layer are one run of
memory, and so are its values, so attention reads straight on. On the CPU memory is committed only where it is written, a huge
page at a time (small ones would be had sooner, and are read more slowly), and `prepare` does that before a request has to wait
for it; a device gives all of it at once. The experts of cached tokens are only told, never computed with: they stay on the CPU.
"""

from __future__ import annotations

import numpy as np
import torch

from trainer.inference.embedded.places import CPU
from trainer.replay.wire import Experts

AHEAD_BYTES = 32 << 20
"""Memory of one deployment that is made ready for sequences to come. A slot that is larger is not: reading the prompt of
a policy with such slots takes so long that the kernel's clearing does not show."""


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
        """`routed`: layers with experts and experts a token, for policies that have any."""
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
        """One token's keys (or values) of one layer are a row. For compiled loops: there are none on a device."""
        self.experts: Experts | None = np.zeros((slots, length, *routed), np.uint16) if routed else None
        """The experts that each cached token was routed to: they belong to its keys and values."""
        self._rows = self.data.view(-1, kv_heads * head_dim)
        of_experts = self.experts[0].nbytes if self.experts is not None else 0
        slot_bytes = self.slot_rows * kv_heads * head_dim * self.data.element_size() + of_experts
        self.ahead = AHEAD_BYTES // slot_bytes if device == CPU else 0
        """Slots that are made ready before they are needed."""
        self._ready = [0] * slots
        """Layers of each slot that were."""

    def prepare(self, slot: int) -> bool:
        """Has the kernel give the memory of the next layer of a slot that holds nothing. False: it has given all."""
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
