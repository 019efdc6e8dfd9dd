"""Which renderer a policy gets: a family's code where it renders as the policy's own template does, else the template.

A folder's name says nothing about its template: a fine-tune may have changed it. So each family whose tokens the
vocabulary has renders a few conversations, and is taken when each has the template's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from trainer.model_import import RENDERERS
from trainer.policy.rendering.chat import ChatRenderer, ChatTemplateError
from trainer.policy.rendering.family import FAILS, FamilyRenderer
from trainer.policy.rendering.reading import CALL
from trainer.policy.rendering.template import TemplateRenderer
from trainer.policy.rendering.toy import ToyRenderer

FAMILIES: tuple[str, ...] = tuple(name for name in RENDERERS if name not in ("auto", "template", "toy"))
WITHOUT_TEMPLATE = {"deepseek-v4": "｜DSML｜"}
"""Families that ship no template, each with a token that only it has."""
KEY = "opencomposer_renderer"
"""Key of `tokenizer_config.json` for a renderer that was chosen; it is saved with the tokenizer."""
TOY_TOKENS = frozenset({"<|bos|>", "<|user|>", "<|assistant|>", "<|end|>"})

_CALL = {"id": "functions.grep:0", "type": "function", "function": {"name": "grep", "arguments": {"pattern": "x"}}}
_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "grep",
            "description": "Search.",
            "parameters": {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
        },
    }
]
_CALLED: list[dict[str, Any]] = [
    {"role": "system", "content": "You fix code."},
    {"role": "user", "content": "Find it."},
    {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [_CALL]},
    {"role": "tool", "content": "a.py:1", "tool_call_id": _CALL["id"], "name": "grep"},
]
_TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You fix code."},
    {"role": "user", "content": "Hi."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye."},
]
PROBES: tuple[tuple[list[dict[str, Any]], list[dict[str, Any]]], ...] = (
    (_TALK[:2], []),
    (_TALK, []),
    (_CALLED[:2], _TOOLS),
    (_CALLED, _TOOLS),
)


def make_renderer(tokenizer: PreTrainedTokenizerBase, name: str = "auto") -> ChatRenderer:
    """The renderer `name`, or, where that is `auto`, the one that the tokenizer was saved with or that fits it.

    Raises ChatTemplateError: the renderer does not fit, or there is neither a template nor a family.
    """
    chosen = name if name != "auto" else str(tokenizer.init_kwargs.get(KEY) or "auto")
    if chosen == "auto":
        return _fitting(tokenizer)
    return _named(tokenizer, chosen)


def choose(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Save the choice with the tokenizer; `auto` takes an earlier one back."""
    if name == "auto":
        tokenizer.init_kwargs.pop(KEY, None)
    else:
        tokenizer.init_kwargs[KEY] = name


def _named(tokenizer: PreTrainedTokenizerBase, name: str) -> ChatRenderer:
    if name == "template":
        return TemplateRenderer(tokenizer)
    if name == "toy":
        return ToyRenderer(tokenizer, "toy")
    if name not in FAMILIES:
        raise ChatTemplateError(f"there is no renderer {name!r}; there are: {', '.join(RENDERERS)}")
    return FamilyRenderer(tokenizer, name)


def _fitting(tokenizer: PreTrainedTokenizerBase) -> ChatRenderer:
    added = tokenizer.get_added_vocab()
    template = str(tokenizer.chat_template or "")
    if added.keys() >= TOY_TOKENS and "<|end|>" in template and CALL not in template:  # the toy's calls are bare
        return ToyRenderer(tokenizer, "toy")
    if not tokenizer.chat_template:
        for name, token in WITHOUT_TEMPLATE.items():
            if token in added:
                return FamilyRenderer(tokenizer, name)
        return TemplateRenderer(tokenizer)  # says what is missing
    for name in FAMILIES:
        try:
            family = FamilyRenderer(tokenizer, name)
        except ChatTemplateError:
            continue
        if renders_as_template(family):
            return family
    return TemplateRenderer(tokenizer)


def renders_as_template(family: FamilyRenderer) -> bool:
    """Whether the family's code gives the tokens of the tokenizer's own template, conversation by conversation."""
    fields = {name: getattr(family.config, name, None) for name in family.config.template_field_names()}
    options = {name: value for name, value in fields.items() if value is not None}
    return all(_same(family, messages, tools, options) for messages, tools in PROBES)


def _same(
    family: FamilyRenderer, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]], options: dict[str, Any]
) -> bool:
    try:
        own = family.start(messages, tools)
        shown = family.safe.apply_chat_template(messages, tools=tools or None, add_generation_prompt=True, **options)
    except FAILS:
        return False
    return bool(own == shown)
