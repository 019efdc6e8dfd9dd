"""Tiny random mixture-of-experts policies of the library's own classes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCAB, EXPERTS, TOP_K = 97, 8, 3
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": TOP_K,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
}


def _qwen(**changes: Any) -> PreTrainedModel:
    sizes = BASE | {"num_experts": EXPERTS, "moe_intermediate_size": 24, "head_dim": 16, "norm_topk_prob": True}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes | changes))


def _mixtral() -> PreTrainedModel:
    return MixtralForCausalLM(MixtralConfig(**BASE, num_local_experts=EXPERTS))


def _deepseek(**changes: Any) -> PreTrainedModel:
    """Groups, a correction bias, low-rank keys and values, one dense layer before two with experts."""
    sizes = BASE | {
        "num_key_value_heads": 4,
        "n_routed_experts": EXPERTS,
        "n_group": 4,
        "topk_group": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "routed_scaling_factor": 2.5,
    }
    return DeepseekV3ForCausalLM(DeepseekV3Config(**sizes | changes))


FAMILIES = {
    "qwen3-moe": _qwen,
    "qwen3-moe-unnormalised": lambda: _qwen(norm_topk_prob=False),
    "mixtral": _mixtral,
    "deepseek-v3": _deepseek,
    "deepseek-v3-unnormalised": lambda: _deepseek(norm_topk_prob=False),
}


def make(family: str, seed: int = 0) -> PreTrainedModel:
    """fp32, weights wide enough that distributions and routing are far from uniform."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FAMILIES[family]().float().eval()
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if "e_score_correction_bias" in name:
                torch.nn.init.normal_(tensor, std=0.05)
            elif tensor.ndim > 1:
                torch.nn.init.normal_(tensor, std=0.25)
    return model


def tokens(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def wide_router() -> PreTrainedModel:
    """16 experts, 4 a token; weights such that near ties are common."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _qwen(num_experts=16, num_experts_per_tok=4).float().eval()
        for tensor in model.parameters():
            if tensor.ndim > 1:
                torch.nn.init.normal_(tensor, std=0.12)
    return model
