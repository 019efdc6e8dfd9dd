"""The initial weights copy before any training, and the class stays stock."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.trainer.toy_tokenizer import fresh_tokenizer
from trainer.learning.supervised import weighted_loss
from trainer.midtrain.copying import prepare_copying
from trainer.midtrain.initialization import random_model
from trainer.midtrain.synthetic import drill
from trainer.toy.model import build_tiny_model, tiny_config


def repeat_attention(model: Qwen3ForCausalLM) -> float:
    """How much layer 1 head 0 looks at what followed the first occurrence, on a span of 20 random tokens said twice."""
    rng = random.Random(1)
    span = rng.sample(range(10, 1000), 20)
    with torch.no_grad():
        out = model(input_ids=torch.tensor([span + span]), output_attentions=True)
    pattern_TT = out.attentions[1][0, 0]
    return float(torch.stack([pattern_TT[20 + t, t + 1] for t in range(2, 19)]).mean())


def test_layer_one_looks_at_what_came_next_last_time() -> None:
    tokenizer = fresh_tokenizer()
    config = tiny_config(tokenizer)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval()
    before = repeat_attention(model)
    prepare_copying(model, seed=0)
    assert before < 0.1
    assert repeat_attention(model) > 0.5


def test_drills_are_easier_than_chance_without_training() -> None:
    tokenizer = fresh_tokenizer()
    rng = random.Random(0)
    batch = [drill(rng, range(10, 1000)) for _ in range(8)]
    ours = build_tiny_model(tokenizer, 0)
    stock = Qwen3ForCausalLM(tiny_config(tokenizer))
    with torch.no_grad():
        assert weighted_loss(ours, batch)[0] < weighted_loss(stock, batch)[0] - 0.05


def test_a_seed_gives_the_same_weights_and_leaves_the_generator_alone() -> None:
    tokenizer = fresh_tokenizer()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, two = build_tiny_model(tokenizer, 1), build_tiny_model(tokenizer, 1)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    other = build_tiny_model(tokenizer, 2)
    assert not torch.equal(one.model.embed_tokens.weight, other.model.embed_tokens.weight)


def test_a_shape_that_cannot_hold_the_circuit_is_refused() -> None:
    config = Qwen3Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    with pytest.raises(ValueError, match="two query heads"):
        prepare_copying(Qwen3ForCausalLM(config), seed=0)


def test_other_shapes_start_from_the_weights_of_their_class() -> None:
    config = Qwen3Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    torch.manual_seed(7)
    stock = Qwen3ForCausalLM(config)
    drawn = random_model(Qwen3ForCausalLM, config, seed=7)
    assert all(torch.equal(a, b) for a, b in zip(stock.parameters(), drawn.parameters(), strict=True))
