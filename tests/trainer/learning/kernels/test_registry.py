"""The registry installs a kernel for the compute format that it is for, and only there."""

from __future__ import annotations

import pytest
import torch

from tests.distributed.worlds import policy
from trainer.learning.kernels import KERNELS, install_kernels


def normed(*, precision: str) -> torch.dtype:
    """What the model's RMSNorm returns under autocast."""
    model = policy("qwen3")
    installed = install_kernels(model, precision=precision)
    assert installed == [kernel.name for kernel in KERNELS if kernel.precision == precision]
    with torch.autocast("cpu", torch.bfloat16):
        out: torch.Tensor = model.get_decoder().norm(torch.randn(1, 3, model.config.hidden_size))
    return out.dtype


@pytest.mark.parametrize(("precision", "wanted"), [("bfloat16", torch.bfloat16), ("float32", torch.float32)])
def test_a_kernel_is_installed_for_its_format_alone(precision: str, wanted: torch.dtype) -> None:
    assert normed(precision=precision) == wanted
