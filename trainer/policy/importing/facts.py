"""Facts of a policy folder, read without its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from trainer.model_import import ModelFacts
from trainer.policy.importing.checks import check_context, check_tokens, read_config
from trainer.policy.importing.headers import tensors_of
from trainer.policy.importing.quantized import quantization_of
from trainer.policy.rendering import make_renderer
from trainer.policy.rendering.chat import ChatRenderer, ChatTemplateError
from trainer.policy.round_trip import OPENING, PROFILE, problem_of
from trainer.policy.store import load_tokenizer

BF16, TRAIN = 2, 16
"""Bytes a parameter: served in bf16; trained by AdamW in float32 (weights, gradients, two moments)."""


def facts_of(folder: Path, *, stored: str = "") -> ModelFacts:
    """Read a policy folder without its weights. `stored` says what they were converted from.

    Raises PolicyUnreadable: something that no stage can do without is missing or wrong.
    """
    config = read_config(folder)
    text = {**config, **(config.get("text_config") or {})}
    check_context(folder, text)
    tensors = tensors_of(folder)
    quantization = quantization_of(folder, config)
    tokenizer = load_tokenizer(folder)
    check_tokens(folder, tokenizer, config)
    parameters = sum(tensor.numel for tensor in tensors.values())
    formats = sorted({tensor.dtype for tensor in tensors.values()})
    renderer, problem = _renderer(tokenizer)
    prompt, lacks = _lacks(renderer, tokenizer, problem)
    return ModelFacts(
        model_type=str(config["model_type"]),
        parameters=parameters,
        context=text.get("max_position_embeddings"),
        stored=stored or (quantization.words if quantization else ", ".join(formats)),
        attention=_attention(text),
        experts=int(text.get("n_routed_experts") or text.get("num_local_experts") or text.get("num_experts") or 0),
        renderer=renderer.name if renderer else "",
        prompt_tokens=prompt,
        serve_bytes=BF16 * parameters,
        train_bytes=TRAIN * parameters,
        kv_bytes=_kv_bytes(text),
        lacks=lacks,
        problem=problem,
    )


def _renderer(tokenizer: PreTrainedTokenizerBase) -> tuple[ChatRenderer | None, str]:
    try:
        made = make_renderer(tokenizer)
    except ChatTemplateError as error:
        return None, str(error)
    return made, problem_of(made)


def _lacks(
    renderer: ChatRenderer | None, tokenizer: PreTrainedTokenizerBase, problem: str
) -> tuple[int | None, list[str]]:
    """(tokens of an opening prompt, what is missing)."""
    lacks = [] if tokenizer.chat_template or renderer else ["a chat template"]
    if renderer is None:
        return None, lacks
    tools = schemas_of(get_profile(PROFILE))
    try:
        opened = renderer.start(OPENING, tools)
    except ChatTemplateError:
        return None, [*lacks, "a template that shows a conversation"]
    name = str(tools[0]["function"]["name"])
    if name not in renderer.text(opened):
        lacks.append("tools in its template: the policy is not told which it has")
    if problem:
        lacks.append("a template whose calls are read back")
    return len(opened), lacks


def _attention(config: dict[str, Any]) -> str:
    if config.get("kv_lora_rank"):
        return f"multi-head latent (MLA), rank {config['kv_lora_rank']}"
    heads, kv = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if not isinstance(heads, int) or not isinstance(kv, int):
        return "unknown"
    return f"{'multi-head' if kv == heads else 'grouped-query'}, {heads} heads, {kv} of keys and values"


def _kv_bytes(config: dict[str, Any]) -> int | None:
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int):
        return None
    if rank := config.get("kv_lora_rank"):
        return BF16 * layers * (int(rank) + int(config.get("qk_rope_head_dim") or 0))
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if not isinstance(heads, int) or not isinstance(hidden, int):
        return None
    size = int(config.get("head_dim") or hidden // heads)
    return BF16 * layers * 2 * size * int(config.get("num_key_value_heads") or heads)
