"""Tiny random Hugging Face policies for tests of the learner."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 32


def tiny_model(seed: int = 0, width: int = 32) -> Qwen3ForCausalLM:
    """About 10 k parameters (at the usual width), fp32, tied embeddings."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=width * 3 // 2,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).float()
