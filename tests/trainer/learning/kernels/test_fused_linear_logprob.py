"""Chunked log-probabilities are the plain ones, gradients included, and the logits never exist at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.learning.kernels.fused_linear_logprob import chunked_scores, mask_logits

N, D, V, TEMPERATURE = 37, 16, 101, 0.7


def inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, D, generator=draw).to(dtype).requires_grad_()
    weight = torch.randn(V, D, generator=draw).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(0, V, (N,), generator=draw)


def plain(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, pairs: tuple[torch.Tensor, torch.Tensor] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = (hidden @ weight.T).float() / TEMPERATURE
    logps = torch.log_softmax(mask_logits(logits, *pairs) if pairs else logits, -1)
    return logps.gather(1, targets[:, None])[:, 0], -(logps.exp() * logps).nan_to_num(0.0).sum(-1)


class Largest(TorchDispatchMode):
    """Remembers the most elements of any tensor that an operation made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize("at_once", [0, 1, 3 * V, 8 * V + 5, 10**9])
@pytest.mark.parametrize("closed", [False, True])
def test_values_and_gradients(at_once: int, closed: bool) -> None:
    hidden, weight, targets = inputs()
    pairs = None
    if closed:  # every third token was sampled among its target and two more
        rows = torch.arange(0, N, 3)
        ids = torch.stack([targets[rows], (targets[rows] + 1) % V, (targets[rows] + 7) % V], 1)
        pairs = rows.repeat_interleave(3), ids.flatten()
    scale = torch.linspace(-1, 1, N)
    wanted = plain(hidden, weight, targets, pairs)
    gradients = torch.autograd.grad((wanted[0] * scale).sum(), [hidden, weight])
    found = chunked_scores(hidden, weight, targets, temperature=TEMPERATURE, lm_head_chunk_size=at_once, mask_M=pairs)
    (found[0] * scale).sum().backward()
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-5, atol=1e-5)
    assert not found[1].requires_grad
    for mine, other in zip((hidden.grad, weight.grad), gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_never_more_logits_than_asked_for() -> None:
    hidden, weight, targets = inputs()
    with Largest() as largest:
        logprobs, _ = chunked_scores(hidden, weight, targets, temperature=TEMPERATURE, lm_head_chunk_size=4 * V)
        logprobs.sum().backward()
    assert largest.elements == V * D, "the gradient of the projection is the largest that there is"
    with Largest() as largest:
        plain(hidden, weight, targets, None)[0].sum().backward()
    assert largest.elements == N * V


def test_kept_probabilities_are_worked_on_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, with chunks smaller than the batch."""
    scale = torch.linspace(-1, 1, N)
    found = []
    for at_once in (1 << 19, 5 * V):
        monkeypatch.setattr("trainer.learning.kernels.fused_linear_logprob.IN_CACHE", at_once)
        hidden, weight, targets = inputs()
        logprobs, entropies = chunked_scores(hidden, weight, targets, temperature=TEMPERATURE, lm_head_chunk_size=0)
        (logprobs * scale).sum().backward()
        found.append((logprobs.detach(), entropies, hidden.grad, weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_half_precision_against_float64(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With compiled loops and with torch's operators: the only roundings are those of logits and of what is kept."""
    monkeypatch.setattr("trainer.learning.kernels.cpu.bf16.FEW_THREADS", 4 if compiled else 0)
    monkeypatch.setattr("trainer.learning.kernels.fused_linear_logprob.IN_CACHE", 5 * V)
    hidden, weight, targets = inputs(torch.bfloat16)
    wide = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight)]
    scale = torch.linspace(-1, 1, N)
    logits = (hidden @ weight.T).detach().double() / TEMPERATURE
    logps = torch.log_softmax(logits + (wide[0] @ wide[1].T - (wide[0] @ wide[1].T).detach()) / TEMPERATURE, -1)
    (logps.gather(1, targets[:, None])[:, 0] * scale).sum().backward()
    logprobs, entropies = chunked_scores(hidden, weight, targets, temperature=TEMPERATURE, lm_head_chunk_size=0)
    (logprobs * scale).sum().backward()
    torch.testing.assert_close(
        logprobs.double(), logps.gather(1, targets[:, None])[:, 0].detach(), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(entropies.double(), -(logps.exp() * logps).sum(-1).detach(), rtol=1e-5, atol=1e-5)
    for mine, exact in zip((hidden.grad, weight.grad), wide, strict=True):
        assert mine is not None and exact.grad is not None
        assert (mine.double() - exact.grad).norm() < 6e-3 * exact.grad.norm()
    with torch.no_grad():
        again = chunked_scores(hidden, weight, targets, temperature=TEMPERATURE, lm_head_chunk_size=0)
    assert torch.equal(again[0], logprobs) and torch.equal(again[1], entropies), "nothing is kept, all else is the same"


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("odd", [float("nan"), -float("nan"), float("inf")])
def test_a_logit_that_is_no_number_is_told(compiled: bool, odd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.learning.kernels.cpu.bf16.FEW_THREADS", 4 if compiled else 0)
    hidden, weight, targets = inputs(torch.bfloat16)
    with torch.no_grad():
        hidden[3, 2] = odd
    logprobs, entropies = chunked_scores(hidden, weight, targets, temperature=1.0, lm_head_chunk_size=0)
    assert logprobs[3].isnan() and entropies[3].isnan() and logprobs[4:].isfinite().all()


def test_gradients_of_half_precision_weights_are_summed_in_float32() -> None:
    """Against float64: no worse with many chunks than with one."""
    errors = []
    for at_once in (V, 10**9):
        hidden, weight, targets = inputs(torch.bfloat16)
        wide = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight)]
        logits = wide[0] @ wide[1].T / TEMPERATURE
        torch.log_softmax(logits, -1).gather(1, targets[:, None]).sum().backward()
        chunked_scores(hidden, weight, targets, temperature=TEMPERATURE, lm_head_chunk_size=at_once)[0].sum().backward()
        assert weight.grad is not None and wide[1].grad is not None
        errors.append(float((weight.grad.double() - wide[1].grad).norm() / wide[1].grad.norm()))
    assert errors[0] < 1.2 * errors[1] + 1e-4


def test_no_token_at_all() -> None:
    hidden, weight, targets = inputs()
    logprobs, entropy = chunked_scores(hidden[:0], weight, targets[:0], temperature=1.0, lm_head_chunk_size=V)
    logprobs.sum().backward()
    assert len(entropy) == 0 and weight.grad is not None and not weight.grad.any()
