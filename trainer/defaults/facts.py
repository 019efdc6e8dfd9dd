"""What is known of a model, its tasks and the machines before a run starts. Unknown values are None, never guessed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a decoder, from its config.json."""

    width: int
    layers: int
    queries: int
    """Number of heads × head size."""
    keys: int
    """Number of key heads × head size. Values have the same size."""
    inner: int
    """Width of a layer's MLP, summed over the experts that a token is routed to."""
    vocabulary: int

    @property
    def kv_values(self) -> int:
        """Numbers in the KV cache per token."""
        return 2 * self.layers * self.keys

    @property
    def layer_activations(self) -> int:
        """Numbers that one layer keeps per token for the backward pass. Attention keeps no quadratic matrix."""
        return 6 * self.width + 5 * self.queries + 6 * self.keys + 4 * self.inner  # norms of heads are among them


@dataclass(frozen=True, slots=True)
class Model:
    """A policy folder as its config.json describes it."""

    parameters: int
    context: int | None = None
    """Longest context that the rotary embedding covers (`max_position_embeddings`)."""
    experts: int = 0
    """Experts of a mixture-of-experts layer; 0 for a dense model."""
    shape: Shape | None = None
    toy: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that defaults are derived from."""

    model: Model
    prompt_tokens: int | None = None
    """Tokens of the longest opening prompt among the tasks: system message, tool schemas and instruction."""
    prompt_task: str = ""
    """Task with that prompt."""
    eval_prompt_tokens: int | None = None
    """The same among the tasks of the run's evaluations, which have the same limits."""
    eval_prompt_task: str = ""
    engine_context: int | None = None
    """Longest context that the inference engine serves."""
    kv_tokens: int | None = None
    """Tokens that the engine's KV cache holds for this model."""
    trainer_bytes: int | None = None
    """Memory of one trainer rank."""
    engine_bytes: int = 0
    """What the inference engine takes of that memory, its weights and its KV cache; 0 where it has memory of its own."""
    bfloat16: bool | None = None
    """Whether the trainer's processor or GPU has bfloat16 instructions."""


def read_model(folder: Path, *, parameters: int, toy: bool = False) -> Model:
    """The model of a folder. What config.json lacks stays unknown."""
    found = _config(folder)
    experts = next(
        (found[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if _is_count(found.get(key))), 0
    )
    context = found.get("max_position_embeddings")
    return Model(
        parameters=parameters,
        context=context if _is_count(context) else None,
        experts=experts,
        shape=read_shape(folder),
        toy=toy,
    )


def read_shape(folder: Path) -> Shape | None:
    """Shape from config.json. None if a needed value is missing; nothing is guessed."""
    found = _config(folder)
    try:
        heads, width = int(found["num_attention_heads"]), int(found["hidden_size"])
        size = int(found.get("head_dim") or width // heads)
        experts = int(found.get("num_experts_per_tok") or 1)
        inner = int(found.get("moe_intermediate_size") or found["intermediate_size"]) * experts
        keys = int(found.get("num_key_value_heads") or heads) * size
        return Shape(width, int(found["num_hidden_layers"]), heads * size, keys, inner, int(found["vocab_size"]))
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    text = found.get("text_config")
    return found | text if isinstance(text, dict) else found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
