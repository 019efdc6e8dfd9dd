"""Mixture-of-experts policies through the library's own classes: they compute; this engine batches, caches and samples.

Only attention is replaced: the library lets a model call any registered function with queries, keys and values. The
function here writes them to the engine's cache and attends to its contents. The routers' choices are kept beside the
keys and values computed with them. Slower than `model.py`, and equal for every model family.

Shape letters as in `model.py`; L layers with experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from trainer.inference.embedded.attention import Attention
from trainer.inference.embedded.batch import Batch
from trainer.inference.embedded.cache import KVCache
from trainer.inference.embedded.kernels.loops import Loops
from trainer.inference.embedded.model import Decoder
from trainer.inference.embedded.shape import BY_LENGTH, DecoderShape
from trainer.inference.errors import UnsupportedModel
from trainer.policy.names import build_from_state
from trainer.router_replay.hooks import Recorder

ATTENTION = "opencomposer_paged"


class LibraryShape(DecoderShape):
    """A shape with the full config. Key and value heads are as attention sees them."""

    config: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LibraryShape:
        """Parse a config. Raises UnsupportedModel."""
        if config.get("sliding_window"):
            raise UnsupportedModel("sliding-window attention is not supported here; serve it with vLLM")
        rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
        if (kind := rope.get("rope_type", rope.get("type"))) in BY_LENGTH:
            raise UnsupportedModel(f"rope_type {kind!r} is not supported here; serve it with vLLM")
        heads = config["num_attention_heads"]
        sizes: dict[str, Any] = {"num_key_value_heads": heads, "rms_norm_eps": 1e-6, **config}
        sizes["head_dim"] = config.get("head_dim") or config["hidden_size"] // heads
        if "kv_lora_rank" in config:  # the low-rank form is expanded before attention sees it
            sizes["num_key_value_heads"] = heads
            sizes["head_dim"] = max(config["qk_nope_head_dim"] + config["qk_rope_head_dim"], config["v_head_dim"])
        return cls.model_validate(sizes | {"config": config})


@dataclass(frozen=True)
class LibraryWeights:
    """One policy version: the library's model, with attention through the engine."""

    model: PreTrainedModel
    recorder: Recorder
    embedding_VC: torch.Tensor
    head: Callable[[torch.Tensor], torch.Tensor]
    """Map states after the last norm to logits."""

    @classmethod
    def of(cls, model: PreTrainedModel) -> LibraryWeights:
        embedding, head = cast(nn.Embedding, model.get_input_embeddings()), model.get_output_embeddings()
        return cls(model, Recorder(model), embedding.weight, cast(nn.Linear, head))


def library_weights(shape: DecoderShape, state: Mapping[str, torch.Tensor], device: torch.device) -> Any:
    """LibraryWeights from tensors under checkpoint names. Raises UnsupportedModel."""
    assert isinstance(shape, LibraryShape)
    config = AutoConfig.for_model(**shape.config)
    try:
        kind = cast(Any, MODEL_FOR_CAUSAL_LM_MAPPING)[type(config)]
        model = build_from_state(kind, config, state, attention=ATTENTION).eval().to(device)
        return LibraryWeights.of(model)
    except (RuntimeError, ValueError, KeyError) as error:
        raise UnsupportedModel(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Step:
    """A packed batch as attention sees it."""

    decoder: LibraryDecoder
    cache: KVCache
    rows_N: torch.Tensor
    attention: Attention


class LibraryDecoder(Decoder):
    weights: Any
    """LibraryWeights."""

    def __init__(self, shape: DecoderShape, weights: Any, loops: Loops | None = None) -> None:
        self.shape = shape
        self.loops = loops
        self.weights = weights
        self.device = weights.model.device
        self.heads, self.kv_heads, self.head_dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        found = weights.recorder.routers
        self.routed = (len(found), found[0].top_k) if found else None

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Logits [len(logits_at), V] in fp32; writes the batch's keys, values and experts to the cache."""
        step = _Step(self, cache, batch.rows_N, Attention(batch, cache, self.heads, self.loops))
        model = self.weights.model
        hidden_1NC = model.get_decoder()(
            input_ids=batch.tokens_N[None], position_ids=batch.positions_N[None], use_cache=False, engine_step=step
        ).last_hidden_state
        if cache.experts is not None:
            chosen_NLK = self.weights.recorder.chosen()
            cache.experts[batch.rows_N.cpu().numpy()] = chosen_NLK.cpu().numpy()
        self.hidden = hidden_1NC[0, batch.logits_at]
        logits: torch.Tensor = self.weights.head(self.hidden)
        return logits

    def attend(
        self, layer: int, q_NHD: torch.Tensor, k_NKD: torch.Tensor, v_NKD: torch.Tensor, scale: float, step: _Step
    ) -> torch.Tensor:
        """Attention of one layer over the cache, including the batch: [N, H, D of the values]."""
        count, width = q_NHD.shape[0], v_NKD.shape[-1]
        q, k, v = (F.pad(part, (0, self.head_dim - part.shape[-1])) for part in (q_NHD, k_NKD, v_NKD))
        step.cache.write(layer, step.rows_N, k.reshape(count, -1), v.reshape(count, -1))
        q_NE = q.reshape(count, -1).contiguous()
        out = step.attention(layer, q_NE, scale, torch.empty_like(q_NE))
        return out.view(count, self.heads, self.head_dim)[..., :width]


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    engine_step: _Step,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function that the library's layers call, with tensors [1, heads, N, size]."""
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    return engine_step.decoder.attend(module.layer_idx, q, k, v, scaling, engine_step)[None], None


if ATTENTION not in ALL_ATTENTION_FUNCTIONS:
    AttentionInterface.register(ATTENTION, _attention)
