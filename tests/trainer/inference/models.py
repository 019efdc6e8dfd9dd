"""Tiny random policies of the supported families, and what the library itself says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCAB = 97
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,  # wide, so that distributions are far from uniform
}

FAMILIES = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**BASE, head_dim=16, tie_word_embeddings=True)),
    "qwen3-mqa": lambda: Qwen3ForCausalLM(
        Qwen3Config(
            **BASE | {"num_attention_heads": 2, "num_key_value_heads": 1},
            head_dim=24,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        )
    ),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**BASE, tie_word_embeddings=False)),
    "llama-biases-full-heads": lambda: LlamaForCausalLM(
        LlamaConfig(**BASE | {"num_key_value_heads": 4}, attention_bias=True, mlp_bias=True)
    ),
    "llama-3-rope": lambda: LlamaForCausalLM(
        LlamaConfig(
            **BASE,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        )
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**BASE, tie_word_embeddings=True)),
}


def make(family: str, seed: int = 0) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FAMILIES[family]().float().eval()
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:  # stock values hide a forgotten gain or bias
                torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.2)
    return model


@torch.no_grad()
def logprobs(model: PreTrainedModel, prompt: list[int], tokens: list[int], temperature: float = 1.0) -> torch.Tensor:
    """The library's log-probabilities of `tokens` after `prompt`: [len(tokens)]."""
    logits = model(torch.tensor([prompt + tokens])).logits[0].float() / temperature
    table = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    return table.gather(-1, torch.tensor(tokens)[:, None])[:, 0]


def nudged(policy: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A step later: one word in fifty of each tensor is another, as after an optimiser step with a small rate."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.parameters():
            chosen = torch.rand(weight.shape, generator=generator) < 0.02
            weight[chosen] += (
                0.3 * weight.std().nan_to_num().clamp(min=0.02) * torch.randn(int(chosen.sum()), generator=generator)
            )
    return policy


def save(model: PreTrainedModel, directory: Path) -> Path:
    model.save_pretrained(directory)
    return directory
