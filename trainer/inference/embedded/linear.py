"""Products with weights: the plain matrix product, and oneDNN's with weights that were laid out for it beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

PACKED_FROM = 1 << 17
"""Weights of fewer elements stay in the fast cache whatever their layout; measured: nothing is gained for them."""
PACKED_ROWS = 8
"""With fewer rows the plain product is faster."""
_HINT = 64
"""Rows that the layout is made for."""


@dataclass(frozen=True, slots=True)
class Linear:
    """x · weight + bias. Big weights are kept twice."""

    weight_IO: torch.Tensor
    """Contiguous, inputs first: products with few rows are faster that way."""
    bias_O: torch.Tensor | None
    packed: torch.Tensor | None

    @classmethod
    def of(cls, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> Linear:
        """From a weight as checkpoints have it: [out, in], fp32."""
        packed = None
        if weight_OI.numel() >= PACKED_FROM and _packs():
            packed = _onednn()._reorder_linear_weight(weight_OI.contiguous(), _HINT)
        return cls(weight_OI.t().contiguous(), bias_O, packed)

    def __call__(self, x_NI: torch.Tensor, out_NO: torch.Tensor | None = None) -> torch.Tensor:
        """[N, O], contiguous; in `out_NO` where that saves a copy."""
        if self.packed is not None and len(x_NI) >= PACKED_ROWS:
            product: torch.Tensor = _onednn()._linear_pointwise(x_NI, self.packed, self.bias_O, "none", [], "")
            return product
        if self.bias_O is None:
            return torch.mm(x_NI, self.weight_IO, out=out_NO)
        return torch.addmm(self.bias_O, x_NI, self.weight_IO, out=out_NO)


def _onednn() -> Any:
    return torch.ops.mkldnn


def _packs() -> bool:
    """Whether this build of torch has the operators (its own compiler uses them)."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
