"""Policies: Hugging Face folders that are loaded, rendered through their own chat template, and saved."""

from trainer.policy.errors import PolicyUnreadable
from trainer.policy.rendering import make_renderer
from trainer.policy.rendering.chat import ChatRenderer, ChatTemplateError, ParsedTurn
from trainer.policy.store import (
    Policy,
    load,
    load_model,
    load_tokenizer,
    native_dtype,
    published_dtype,
    save,
    tokenizer_of,
)

__all__ = [
    "ChatRenderer",
    "ChatTemplateError",
    "ParsedTurn",
    "Policy",
    "PolicyUnreadable",
    "load",
    "load_model",
    "load_tokenizer",
    "make_renderer",
    "native_dtype",
    "published_dtype",
    "save",
    "tokenizer_of",
]
