"""RMS norms in half precision have the library's values and gradients, and outside of autocast its very bits."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import pytest
import torch
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from trainer.inference.embedded.kernels import numba_basics
from trainer.learning.kernels.cpu import bf16, numba_bf16
from trainer.learning.kernels.cpu.bf16 import FEW_THREADS
from trainer.learning.kernels.cpu.rms_norm import ROWS, fuse_rms_norm

WIDTH = 48


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test runs with compiled loops and with torch's operators, as with many threads."""
    monkeypatch.setattr(bf16, "FEW_THREADS", FEW_THREADS if request.param == "compiled" else 0)
    return str(request.param)


def norms() -> tuple[torch.nn.Module, torch.nn.Module]:
    """The library's, and the same as it is in a learner of half precision."""
    torch.manual_seed(0)
    library = Qwen3RMSNorm(WIDTH, eps=1e-3)
    torch.nn.init.normal_(library.weight, mean=1.0)
    ours = copy.deepcopy(library)
    fuse_rms_norm(ours)
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


@pytest.mark.parametrize("bits", [16, 32])
def test_both_ways_agree_over_many_rows(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    _, module = norms()
    x, gradient = torch.randn(2, ROWS + 5, 3, WIDTH), torch.randn(2, ROWS + 5, 3, WIDTH).bfloat16()
    x = x.bfloat16() if bits == 16 else x
    found = []
    for threads in (FEW_THREADS, 0):
        monkeypatch.setattr(bf16, "FEW_THREADS", threads)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(through(module, x, gradient))
    for mine, other in zip(*found, strict=True):
        assert mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, rtol=8e-3, atol=1e-4 if mine.dtype == torch.float32 else 1e-2)


def test_numbers_that_are_none_stay_so(way: str) -> None:
    _, module = norms()
    x = torch.randn(3, WIDTH)
    x[1, 7], x[2, 7] = float("nan"), float("inf")
    with torch.autocast("cpu", torch.bfloat16):
        out, of_x, of_weight = through(module, x, torch.ones(3, WIDTH))
    assert out[0].isfinite().all() and out[1].isnan().all() and out[2, 7].isnan()
    assert of_x[1].isnan().all() and of_weight.isnan().all()


def test_compiled_code_is_made_anew_when_what_it_is_made_of_changes() -> None:
    digest = hashlib.sha256(Path(numba_basics.__file__).read_bytes()).hexdigest()[:16]
    assert digest == numba_bf16.BUILT_ON, "set BUILT_ON in numba_bf16.py: numba compiles it again then"


def test_without_autocast_nothing_changes() -> None:
    library, ours = norms()
    x, gradient = torch.randn(4, WIDTH), torch.randn(4, WIDTH)
    assert all(map(torch.equal, through(ours, x, gradient), through(library, x, gradient)))
