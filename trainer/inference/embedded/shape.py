"""The shape of a dense decoder, read from a Hugging Face config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.inference.errors import UnsupportedModel

FAMILIES = {"qwen3", "llama", "qwen2", "mistral"}
"""Dense decoders of one architecture: RMSNorm, rotary attention with grouped keys, SwiGLU. The differences (norms on
queries and keys, biases) follow from the tensors that are present.
"""
WITH_EXPERTS = {"qwen3_moe", "mixtral", "deepseek_v3", "glm4_moe"}
"""Mixture-of-experts decoders, which `hf_moe.py` computes."""


BY_LENGTH = frozenset({"dynamic", "longrope"})
"""Rotary embeddings whose frequencies depend on the longest row in the batch: rows in a batch would differ from the
same rows computed alone.
"""


class DecoderShape(BaseModel):
    """Sizes under their Hugging Face names; `rope` is the union of the old and the new spelling."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    rope: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def read(cls, policy_dir: Path) -> DecoderShape:
        """Read config.json. Raises UnsupportedModel with the finding and the supported models."""
        path = policy_dir / "config.json"
        try:
            config = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise UnsupportedModel(f"{path} does not exist; give a Hugging Face policy directory") from error
        except json.JSONDecodeError as error:
            raise UnsupportedModel(f"{path} is not JSON: {error}") from error
        return cls.from_config(config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DecoderShape:
        family = config.get("model_type")
        if family not in FAMILIES:
            known = sorted(FAMILIES | WITH_EXPERTS)
            raise UnsupportedModel(f"model_type {family!r} is not one of {known}; serve it with vLLM")
        if config.get("hidden_act", "silu") != "silu":
            raise UnsupportedModel(f"hidden_act {config['hidden_act']!r} is not silu; serve it with vLLM")
        windowed = config.get("use_sliding_window") or (family == "mistral" and config.get("sliding_window"))
        if windowed:
            raise UnsupportedModel("sliding-window attention is not supported here; serve it with vLLM")
        heads = config.get("num_attention_heads", 0)
        rope = {"rope_theta": config.get("rope_theta", 10000.0), **(config.get("rope_scaling") or {})}
        rope |= config.get("rope_parameters") or {}
        filled = {
            "num_key_value_heads": heads,
            "rms_norm_eps": 1e-6,
            **config,
            "head_dim": config.get("head_dim") or config.get("hidden_size", 0) // max(heads, 1),
            "rope": rope,
        }
        try:
            return cls.model_validate(filled)
        except ValidationError as error:
            fields = ", ".join(".".join(map(str, e["loc"])) for e in error.errors())
            raise UnsupportedModel(f"config.json lacks or has unusable values for: {fields}") from error

    def rotary(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of positions [0, length), each fp32 [length, head_dim]."""
        kind = self.rope.get("rope_type", self.rope.get("type", "default"))
        dim = self.head_dim
        scale = 1.0
        if kind == "default":
            theta = float(self.rope["rope_theta"])
            inverse = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
        else:
            inverse, scale = _scaled_rotary(self, kind)
        angle = torch.outer(torch.arange(length).float(), inverse)
        angle = torch.cat((angle, angle), -1)
        return angle.cos() * scale, angle.sin() * scale


def _scaled_rotary(shape: DecoderShape, kind: str) -> tuple[torch.Tensor, float]:
    """Long-context variants, by the library's own formulas (imported only when needed)."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if kind not in ROPE_INIT_FUNCTIONS or kind in BY_LENGTH:
        raise UnsupportedModel(f"rope_type {kind!r} is not supported here; serve it with vLLM")
    config = LlamaConfig(
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_position_embeddings,
        rope_parameters=shape.rope,
    )
    inverse, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return inverse, float(scale)
