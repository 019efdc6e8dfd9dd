"""Rows that begin alike: fewer tokens are computed, and log-probabilities and gradients are those of the rows alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from tests.trainer.learning.models import VOCABULARY, tiny_model
from trainer.learning.kernels.prefix_sharing import build_prefix_tree, supports_prefix_sharing
from trainer.learning.loss import score_tokens
from trainer.learning.packing import pack
from trainer.types import TrainSample

rows_of_few_tokens = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=9), min_size=1, max_size=6)


@given(rows_of_few_tokens)
def test_each_beginning_is_there_once_and_rows_are_found_again(rows: list[list[int]]) -> None:
    width = max(map(len, rows))
    found = build_prefix_tree(rows, width)
    assert len(found.tokens_U) == len({tuple(row[: t + 1]) for row in rows for t in range(len(row))})
    for b, row in enumerate(rows):
        of = found.of_BT[b, : len(row)]
        assert found.tokens_U[of].tolist() == row
        assert found.positions_U[of].tolist() == list(range(len(row)))
    assert torch.equal(found.of_BT.flatten()[found.at_U], torch.arange(len(found.tokens_U)))


def latent_model() -> PreTrainedModel:
    torch.manual_seed(3)
    config = DeepseekV3Config(
        vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
        first_k_dense_replace=2,
    )  # fmt: skip
    return DeepseekV3ForCausalLM(config).float()


def samples() -> list[TrainSample]:
    """Two prompts that begin alike, three attempts at each, of different lengths."""
    draw = torch.Generator().manual_seed(1)

    def some(count: int) -> list[int]:
        return torch.randint(1, VOCABULARY, (count,), generator=draw).tolist()

    start, made = some(5), []
    for prompt in (some(6), some(4)):
        for length in (3, 9, 7):
            tokens = [*start, *prompt, *some(length)]
            mask = [0] * (len(tokens) - length) + [1] * length
            zeros = [0.0] * len(tokens)
            made.append(TrainSample(tokens=tokens, loss_mask=mask, sampler_logprobs=zeros, advantages=zeros))
    return made


@pytest.mark.parametrize("build", [tiny_model, latent_model])
def test_scores_and_gradients_are_those_of_separate_rows(build) -> None:
    model = build()
    implementation = model.config._attn_implementation
    [batch] = pack(samples(), max_tokens=1000)
    assert supports_prefix_sharing(model)
    assert batch.shared is not None
    assert len(batch.shared.tokens_U) < batch.tokens
    found = []
    for one in (batch, replace(batch, shared=None)):
        model.zero_grad()
        scores = score_tokens(model, one, temperature=0.8)
        scale_N = torch.linspace(-1, 1, len(scores.logprobs_N))
        (scores.logprobs_N * scale_N).sum().backward()
        found.append((scores.logprobs_N.detach(), [p.grad.clone() for p in model.parameters()]))
    (logps_N, gradients), (wanted_N, wanted) = found
    torch.testing.assert_close(logps_N, wanted_N, rtol=1e-5, atol=1e-5)
    for mine, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    assert model.config._attn_implementation == implementation


def operators_behind(tensor: torch.Tensor) -> set[str]:
    found, open_ = set(), [tensor.grad_fn]
    while open_:
        node = open_.pop()
        if node is not None and node not in found:
            found.add(node)
            open_ += [before for before, _ in node.next_functions]
    return {node.name() for node in found}


@pytest.mark.skipif(torch.cpu.get_capabilities().get("amx_bf16", False), reason="the library's own attention is quick")
def test_half_precision_reaches_attention_and_sums_of_shared_tokens_stay_in_float32() -> None:
    model = tiny_model()
    [batch] = pack(samples() * 40, max_tokens=100_000)
    found = []
    for half in (True, False):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logprobs_N = score_tokens(model, batch, temperature=0.8).logprobs_N
        assert ("_HalfRowsBackward" in operators_behind(logprobs_N)) == half
        logprobs_N.sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for mine, other in zip(*found, strict=True):
        assert (mine - other).norm() < 0.02 * other.norm()


def test_sliding_windows_are_computed_row_by_row() -> None:
    config = Qwen3Config(
        vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, sliding_window=4, use_sliding_window=True, max_window_layers=1,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).float()
    assert not supports_prefix_sharing(model)
    [batch] = pack(samples(), max_tokens=1000)
    alone = [score_tokens(model, one, temperature=1.0).logprobs_N for one in pack(samples(), max_tokens=1)]
    together = score_tokens(model, batch, temperature=1.0).logprobs_N
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-5)
