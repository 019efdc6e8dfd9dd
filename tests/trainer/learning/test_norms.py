"""RMS norms in half precision have the library's values and gradients, and outside of autocast its very bits."""

from __future__ import annotations

import copy

import torch
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from trainer.learning.norms import norm_in_half

WIDTH = 48


def norms() -> tuple[torch.nn.Module, torch.nn.Module]:
    """The library's, and the same as it is in a learner of half precision."""
    torch.manual_seed(0)
    library = Qwen3RMSNorm(WIDTH, eps=1e-3)
    torch.nn.init.normal_(library.weight, mean=1.0)
    ours = copy.deepcopy(library)
    norm_in_half(ours)
    return library, ours


def through(module: torch.nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    """Output and the gradients of input and weight."""
    x = x.clone().requires_grad_()
    out = module(x)
    return [out, *torch.autograd.grad(out, [x, *module.parameters()], gradient.to(out.dtype))]


def test_values_and_gradients_are_the_library_s() -> None:
    library, ours = norms()
    x, gradient = torch.randn(3, 5, WIDTH), torch.randn(3, 5, WIDTH).bfloat16().float()
    wanted = through(library, x, gradient)
    with torch.autocast("cpu", torch.bfloat16):
        found = through(ours, x, gradient)
    assert found[0].dtype == torch.bfloat16
    torch.testing.assert_close(found[0].float(), wanted[0], rtol=8e-3, atol=1e-5)
    for mine, theirs in zip(found[1:], wanted[1:], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_half_precision_input_has_a_half_precision_gradient() -> None:
    library, ours = norms()
    x, gradient = torch.randn(2, WIDTH).bfloat16(), torch.randn(2, WIDTH).bfloat16()
    wanted = through(library, x.float(), gradient.float())
    with torch.autocast("cpu", torch.bfloat16):
        found = through(ours, x, gradient)
    assert found[1].dtype == torch.bfloat16
    torch.testing.assert_close(found[1].float(), wanted[1], rtol=1e-2, atol=1e-2)


def test_without_autocast_nothing_changes() -> None:
    library, ours = norms()
    x, gradient = torch.randn(4, WIDTH), torch.randn(4, WIDTH)
    assert all(map(torch.equal, through(ours, x, gradient), through(library, x, gradient)))
