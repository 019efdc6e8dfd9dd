"""AdamW whose moments are stored in 8 bits, in blocks of 256 values with a scale each (torchao; Dettmers et al. 2021).

Tensors below `MIN_VALUES`, or that blocks do not divide, keep float32 moments, as in torchao. Saved are the codes and the
scales themselves: dequantised values would lose a little at every resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torchao.optim import AdamW8bit
from torchao.optim.subclass_8bit import OptimState8bit

BLOCK = 256
MIN_VALUES = 4096
SIGNED = {"exp_avg": True, "exp_avg_sq": False}
CODES, SCALE = "codes", "scale"


class EightBitAdamW(AdamW8bit):  # type: ignore[misc]  # torchao has no types
    """torchao's AdamW; on a CPU without its compiled kernels, which would need a C++ compiler on every worker."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, lr: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        parameters = list(parameters)
        super().__init__(parameters, lr=lr, betas=betas, weight_decay=weight_decay, block_size=BLOCK)
        self._eager = all(parameter.device.type == "cpu" for parameter in parameters)

    def step(self, closure: None = None) -> None:
        stance: AbstractContextManager[object] = (
            torch.compiler.set_stance("force_eager") if self._eager else nullcontext()
        )
        with stance:
            super().step(closure)


def flattened(key: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Plain tensors of one state entry: itself, or `<key>.codes` (uint8, the parameter's shape) and `<key>.scale` [blocks]."""
    if isinstance(value, OptimState8bit):
        yield f"{key}.{CODES}", value.codes
        yield f"{key}.{SCALE}", value.scale
    else:
        yield key, value


def restored(parameter: Tensor, saved: Mapping[str, Tensor], *, eight_bit: bool) -> dict[str, Tensor]:
    """State of a parameter from `flattened` entries, in the wanted precision whichever they were saved in.

    Raises ValueError: the entries do not fit the parameter.
    """
    state = {key: value for key, value in saved.items() if "." not in key}
    for key, signed in SIGNED.items():
        if (codes := saved.get(f"{key}.{CODES}")) is not None:
            moment = OptimState8bit.zeros(parameter.shape, signed, BLOCK, parameter.device)
            scale = saved.get(f"{key}.{SCALE}")
            if codes.dtype != torch.uint8 or scale is None or scale.shape != moment.scale.shape:
                raise ValueError(f"the 8-bit moments {key!r} are incomplete: the checkpoint is damaged")
            moment.codes.copy_(codes)
            moment.scale.copy_(scale)
            state[key] = moment if eight_bit else moment.dequantize(torch.float32)
        elif eight_bit and key in state and parameter.numel() >= MIN_VALUES and parameter.numel() % BLOCK == 0:
            moment = OptimState8bit.zeros(parameter.shape, signed, BLOCK, parameter.device)
            state[key] = moment.copy_(state[key])
    return state
