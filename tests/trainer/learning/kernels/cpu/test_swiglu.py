"""Gated layers in half precision have the library's values and gradients, and outside of autocast its very bits."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

from trainer.learning.kernels.cpu import bf16
from trainer.learning.kernels.cpu.swiglu import fuse_swiglu

ROWS, WIDTH = 37, 48


def gated(act: str = "silu") -> tuple[torch.nn.Module, torch.nn.Module]:
    """The library's, and the same as it is in a learner of half precision."""
    torch.manual_seed(0)
    library = Qwen3MLP(Qwen3Config(hidden_size=WIDTH, intermediate_size=3 * WIDTH, hidden_act=act))
    ours = copy.deepcopy(library)
    fuse_swiglu(ours)
    return library, ours


def through(module: torch.nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    """Output and the gradients of input and weights, as float32."""
    x = x.clone().requires_grad_()
    out = module(x)
    return [t.float() for t in (out, *torch.autograd.grad(out, [x, *module.parameters()], gradient.to(out.dtype)))]


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_values_and_gradients_are_the_library_s(size: float) -> None:
    """No further from its float32 than its own half precision; gates of 30 are open or shut altogether."""
    library, ours = gated()
    x, gradient = torch.randn(ROWS, WIDTH) * size, torch.randn(ROWS, WIDTH)
    wanted = through(library, x, gradient)
    with torch.autocast("cpu", torch.bfloat16):
        theirs, mine = through(library, x, gradient), through(ours, x, gradient)
    for exact, other, found in zip(wanted, theirs, mine, strict=True):
        assert (found - exact).norm() <= 1.1 * (other - exact).norm()


def test_a_number_that_is_none_stays_so() -> None:
    _, ours = gated()
    x = torch.randn(3, WIDTH)
    x[1, 7] = float("nan")
    with torch.autocast("cpu", torch.bfloat16):
        out, of_x, *_ = through(ours, x, torch.ones(3, WIDTH))
    assert out[0].isfinite().all() and out[1].isnan().all() and of_x[1].isnan().all()


@pytest.mark.parametrize("why", ["no autocast", "many threads", "another activation"])
def test_elsewhere_the_library_runs(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "many threads":
        monkeypatch.setattr(bf16, "FEW_THREADS", 0)
    library, ours = gated("gelu" if why == "another activation" else "silu")
    x, gradient = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    with torch.autocast("cpu", torch.bfloat16, enabled=why != "no autocast"):
        assert all(map(torch.equal, through(ours, x, gradient), through(library, x, gradient)))
