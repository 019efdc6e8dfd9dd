"""The toy policy from random weights: a stock Qwen3 with a tiny configuration."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from trainer.midtrain.initialization import random_model


def tiny_config(tokenizer: PreTrainedTokenizerBase) -> Qwen3Config:
    """0.92 M parameters: 4 layers of width 128, two query heads of 64 on one key-value head, tied embeddings.

    Heads of 64 and a large rotary base leave each head slow channels in which content can be matched at any
    distance; copying, on which the whole task rests, forms there.
    """
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
        initializer_range=0.02,
        use_cache=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def build_tiny_model(tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen3ForCausalLM:
    """A fresh model that can already copy; the same seed gives the same weights, the global generator is untouched."""
    return random_model(Qwen3ForCausalLM, tiny_config(tokenizer), seed=seed)
