"""Attention in half precision beside the library's in double precision."""

from __future__ import annotations

import pytest
import torch

from trainer.learning.kernels.cpu.attention import QUERIES, causal_attention


@pytest.mark.parametrize("length", [1, 7, QUERIES, QUERIES + 1, 2 * QUERIES + 30])
@pytest.mark.parametrize(("heads", "keys", "wide"), [(4, 2, 16), (2, 2, 24)])
def test_output_and_gradients_are_those_of_exact_attention(length: int, heads: int, keys: int, wide: int) -> None:
    torch.manual_seed(length)
    shapes = (2, heads, length, 16), (2, keys, length, 16), (2, keys, length, wide)
    given = [torch.randn(shape).bfloat16() for shape in shapes]
    gradient = torch.randn(2, heads, length, wide)
    mine = [part.clone().requires_grad_() for part in given]
    out = causal_attention(mine[0], mine[1], mine[2], scaling=0.25)
    assert out.dtype == torch.bfloat16
    out.backward(gradient.bfloat16())
    exact = [part.double().requires_grad_() for part in given]
    query, key, value = exact
    wanted = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, scale=0.25, is_causal=True, enable_gqa=True
    )
    wanted.backward(gradient.bfloat16().double())
    torch.testing.assert_close(out.double(), wanted, rtol=0.02, atol=0.02)
    for part, other in zip(mine, exact, strict=True):
        assert part.grad is not None and other.grad is not None
        error = (part.grad.double() - other.grad).norm() / other.grad.norm().clamp_min(1e-9)
        assert error < 0.01 or length == 1, error  # a single key has one probability, and no gradient through it


def test_what_lies_ahead_changes_nothing() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 90, 16).bfloat16() for _ in range(3))
    before = causal_attention(query, key, value, scaling=0.25)
    key[:, :, 70:], value[:, :, 70:] = 9.0, float("1e4")
    assert torch.equal(causal_attention(query, key, value, scaling=0.25)[:, :, :70], before[:, :, :70])
