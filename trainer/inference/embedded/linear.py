"""Linear layers: compiled panels where loops are available, else torch's products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from trainer.inference.embedded.kernels.loops import Floats, Loops


class Ground:
    """Arena that holds weights side by side, allocated in blocks that the kernel backs with large pages (numpy requests
    those from 4 MiB on). A step reads every weight once, and small pages would cost an address look-up each.
    """

    BLOCK = 16 << 20
    LINE = 64
    """Bytes of a cache line; vectors that straddle two take twice as long to load."""

    def __init__(self) -> None:
        self._left: Floats = np.empty(0, np.float32)

    def put(self, values: torch.Tensor) -> Floats:
        """Contiguous copy of fp32 `values`."""
        size = values.numel()
        if size > len(self._left):
            block = np.empty(max(size, self.BLOCK // 4) + self.LINE // 4, np.float32)
            self._left = block[-block.ctypes.data % self.LINE // 4 :]
        taken, self._left = self._left[:size], self._left[-(-size // 16) * 16 :]
        copy = taken.reshape(values.shape)
        copy[...] = values.numpy()
        return copy


@dataclass(frozen=True, slots=True)
class Panels:
    """A weight in the layout of `Loops.product`: panels of 16 outputs, inputs first in each, zero-padded."""

    weight_PIO: Floats
    bias_PO: Floats

    @classmethod
    def of(cls, weight_OI: torch.Tensor, bias_O: torch.Tensor | None, width: int, ground: Ground) -> Panels:
        missing = -len(weight_OI) % width
        filled = F.pad(weight_OI, (0, 0, 0, missing)).view(-1, width, weight_OI.shape[1])
        bias = weight_OI.new_zeros(len(weight_OI)) if bias_O is None else bias_O
        return cls(ground.put(filled.transpose(1, 2)), F.pad(bias, (0, missing)).view(-1, width).numpy())


@dataclass(frozen=True, slots=True)
class Linear:
    """x · weight + bias."""

    outputs: int
    weight_IO: torch.Tensor | None
    """Contiguous, inputs first, which is faster in torch's products with few rows. None where there are panels."""
    bias_O: torch.Tensor | None
    panels: Panels | None
    loops: Loops | None

    @classmethod
    def of(
        cls,
        weight_OI: torch.Tensor,
        bias_O: torch.Tensor | None = None,
        loops: Loops | None = None,
        ground: Ground | None = None,
    ) -> Linear:
        """Build from a checkpoint's weight: [out, in], fp32. Panels lie in `ground`."""
        if loops is not None:
            panels = Panels.of(weight_OI, bias_O, loops.PANEL, ground or Ground())
            return cls(len(weight_OI), None, None, panels, loops)
        return cls(len(weight_OI), weight_OI.t().contiguous(), bias_O, None, None)

    def __call__(self, x_NI: torch.Tensor, out_NO: torch.Tensor | None = None) -> torch.Tensor:
        """Returns [N, O], contiguous; in `out_NO` where that saves an allocation."""
        if self.loops is not None and self.panels is not None:
            out = x_NI.new_empty(len(x_NI), self.outputs) if out_NO is None else out_NO
            self.loops.product(x_NI.contiguous().numpy(), self.panels.weight_PIO, self.panels.bias_PO, out.numpy())
            return out
        assert self.weight_IO is not None
        if self.bias_O is None:
            return torch.mm(x_NI, self.weight_IO, out=out_NO)
        return torch.addmm(self.bias_O, x_NI, self.weight_IO, out=out_NO)
