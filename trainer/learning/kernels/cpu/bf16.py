"""When training in half precision runs compiled loops (`numba_bf16.py`) in place of torch's operators, and how they see tensors.

Torch's operators pass over memory once each; such a loop does the work of several in one pass, on one thread.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

FEW_THREADS = 4
"""Up to so many a loop of one thread is quicker than torch's operators with all."""


def loops_for(*tensors: Tensor) -> Any:
    """The module of compiled loops; None where they cannot take these tensors, would be slower, or there is no compiler."""
    if torch.get_num_threads() > FEW_THREADS or not all(map(_known, tensors)):
        return None
    return _loops()


def rows(tensor: Tensor) -> npt.NDArray[Any]:
    """A contiguous tensor as rows [R, D]; bfloat16, which numpy lacks, as its bits."""
    whole = tensor.detach().view(-1, tensor.shape[-1])
    return (whole.view(torch.uint16) if whole.dtype == torch.bfloat16 else whole).numpy()


def _known(x: Tensor) -> bool:
    readable = x.dtype in (torch.float32, torch.bfloat16) and x.device.type == "cpu"
    return readable and x.is_contiguous() and x.numel() > 0


@cache
def _loops() -> Any:
    try:
        from trainer.learning.kernels.cpu import numba_bf16
    except (ImportError, RuntimeError):  # RuntimeError: numba finds no folder to keep compiled code in
        return None
    return numba_bf16
