"""Small GGUF files, written by the package `gguf` as llama.cpp's converters write them."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from tests.trainer.policy import families

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
}
LAYERS, HIDDEN, HEADS, HEAD = 2, 32, 2, 16


def tokenizer() -> PreTrainedTokenizerBase:
    return families.tokenizer_of(next(one for one in families.FAMILIES if one.name == "qwen3"))


def model(vocabulary: int) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=HEAD, max_position_embeddings=128,
        tie_word_embeddings=False, initializer_range=0.2,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def name_of(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[rest]}"


def write_gguf(
    path: Path, *, architecture: str = "qwen3", quantised: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0
) -> Path:
    """A tiny Qwen3 with its tokenizer and template."""
    words = tokenizer()
    core = json.loads(words.backend_tokenizer.to_str())
    vocabulary = {**core["model"]["vocab"], **words.get_added_vocab()}
    made = model(len(vocabulary))
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(made.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    texts = sorted(vocabulary, key=lambda text: vocabulary[text])
    added = words.get_added_vocab()
    writer.add_token_list(texts)
    writer.add_token_types([gguf.TokenType.CONTROL if text in added else gguf.TokenType.NORMAL for text in texts])
    merges = core["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges] or ["a b"])
    writer.add_eos_token_id(vocabulary["<|endoftext|>"])
    writer.add_pad_token_id(vocabulary["<|endoftext|>"])
    writer.add_chat_template(str(words.chat_template))
    for name, tensor in made.state_dict().items():
        values = tensor.detach().float().numpy()
        if values.ndim == 2:
            writer.add_tensor(name_of(name), gguf.quants.quantize(values, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(name_of(name), values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
