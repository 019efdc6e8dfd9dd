"""Context extension by scaling the rotary embedding, as in mid-training's second phase.

| kind | what changes | from |
|---|---|---|
| theta | a larger base frequency, positions stay (needs training) | Code Llama |
| linear | positions divided by the factor | position interpolation |
| yarn | fast channels unchanged, slow ones divided, attention a little sharper | YaRN |
"""

from __future__ import annotations

from typing import Any, Literal

from transformers import PreTrainedModel

RopeKind = Literal["theta", "linear", "yarn"]


class ContextNotExtensible(ValueError):
    """This policy's position embedding does not support that scaling. The message states the finding."""


def extend_context(model: PreTrainedModel, *, tokens: int, kind: RopeKind) -> None:
    """Extend the positions of `model` to `tokens`, in place; does nothing if they reach that far already.

    Weights stay the same tensors, so an optimizer can continue. Raises ContextNotExtensible: no rotary embedding, or
    one that is scaled already.
    """
    config = model.config
    max_tokens = int(config.max_position_embeddings)
    if tokens <= max_tokens:
        return
    rope: dict[str, Any] = dict(getattr(config, "rope_parameters", None) or {})
    decoder: Any = model.get_decoder()
    found = rope.get("rope_type")
    if found is None or not hasattr(decoder, "rotary_emb"):
        raise ContextNotExtensible(
            f"{config.model_type} has no rotary embedding to scale; {max_tokens} tokens are its most"
        )
    if found != "default":
        raise ContextNotExtensible(f"rope_type is {found!r} already; start from the checkpoint before its extension")
    factor = tokens / max_tokens
    if kind == "theta":
        dim = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        # The slowest channel turns over the longer context as far as it did over the shorter one.
        rope["rope_theta"] = float(rope["rope_theta"]) * factor ** (dim / (dim - 2))
    else:
        rope |= {"rope_type": kind, "factor": factor}
        if kind == "yarn":
            rope["original_max_position_embeddings"] = max_tokens
    config.rope_parameters = rope
    config.max_position_embeddings = tokens
    decoder.rotary_emb = decoder.rotary_emb.__class__(config=config).to(model.device)
