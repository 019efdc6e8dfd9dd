"""bf16 done properly: the forward pass uses the published weights, and updates below a bf16 step add up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.trainer.learning.models import tiny_model
from trainer.learning.master_weights import LOW_KEY, MasterWeights, is_low


def linear(values: torch.Tensor) -> nn.Module:
    layer = nn.Linear(values.shape[1], values.shape[0], bias=False)
    with torch.no_grad():
        layer.weight.copy_(values)
    return layer


def test_parameters_hold_what_is_published_and_give_the_exact_weights_back() -> None:
    exact = torch.randn(64, 33) * torch.logspace(-30, 30, 33)
    layer = linear(exact)
    master = MasterWeights(layer)
    assert torch.equal(layer.weight, exact.bfloat16().float())
    with master.exact():
        assert torch.equal(layer.weight, exact)
    assert torch.equal(layer.weight, exact.bfloat16().float())


def test_a_tie_moves_by_one_unit_in_the_last_place_at_most() -> None:
    ties = torch.tensor([[0x3F808000, 0x3F818000, -0x407E8000]], dtype=torch.int32)
    layer = linear(ties.view(torch.float32))
    master = MasterWeights(layer)
    with master.exact():
        assert (layer.weight.view(torch.int32) - ties).abs().max() <= 1


def test_updates_too_small_for_bf16_add_up() -> None:
    layer = linear(torch.ones(4, 4))
    master = MasterWeights(layer)
    for _ in range(64):
        with master.exact(), torch.no_grad():
            layer.weight.add_(2.0**-13)  # a bf16 step at 1 is 2^-7
    assert torch.equal(layer.weight, torch.full((4, 4), 1.0 + 2.0**-7))


def test_a_saved_state_continues_bit_for_bit() -> None:
    exact = torch.randn(8, 8)
    first = linear(exact)
    saved = MasterWeights(first).state_tensors()
    assert all(is_low(name) and tensor.dtype == torch.int16 for name, tensor in saved.items())
    second = linear(first.weight.detach())  # as a checkpoint in bfloat16 gives it back
    master = MasterWeights(second)
    master.load_state_tensors(saved)
    with master.exact():
        assert torch.equal(second.weight, exact)


def test_a_state_of_another_model_is_refused() -> None:
    master = MasterWeights(linear(torch.ones(2, 2)))
    for name, low in (("other", torch.zeros(2, 2)), ("weight", torch.zeros(3, 2)), ("weight", torch.zeros(2, 2))):
        tensor = low if name == "weight" and low.shape == (2, 2) else low.to(torch.int16)
        with pytest.raises(ValueError, match="another model"):
            master.load_state_tensors({f"{name}|{LOW_KEY}": tensor})


def test_the_trainers_log_probabilities_are_those_of_the_published_weights() -> None:
    """What the sampler computes with: k3 at staleness 0. Without rounding the same model is off."""
    from tests.trainer.learning.models import tiny_model as build

    model, plain = tiny_model(), build()
    plain.load_state_dict(model.state_dict())
    MasterWeights(model)
    ids = torch.arange(1, 40).unsqueeze(0) % int(model.config.vocab_size)
    served = build()
    served.load_state_dict({name: tensor.bfloat16().float() for name, tensor in plain.state_dict().items()})

    def logprobs(one: nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return one(input_ids=ids).logits.double().log_softmax(-1)

    def k3(one: nn.Module) -> float:
        gap = logprobs(one) - logprobs(served)
        return float((gap.exp() - 1 - gap).mean())

    assert k3(model) <= 1e-9 < k3(plain)
