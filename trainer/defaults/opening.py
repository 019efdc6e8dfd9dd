"""Tokens of an opening prompt, without torch and without loading a model.

The chat template is rendered as Hugging Face does (a sandboxed Jinja environment), and counted by the folder's own
`tokenizer.json`. An estimate for the form: episodes use the policy's renderer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of, system_prompt
from trainer.stamps import CONFIG, TOKENIZER, Stamp, stamp

FAILS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""What a template raises where it does not expect a conversation."""


def opening_tokens(folder: Path, instruction: str, *, profile: str) -> int | None:
    """Tokens of the opening prompt of a task. None if the folder has no tokenizer or its template cannot be rendered."""
    found = _opening(folder, stamp(folder, (*CONFIG, *TOKENIZER)))
    if found is None:
        return None
    tokenizer, template, special = found
    messages = [{"role": "system", "content": system_prompt()}, {"role": "user", "content": instruction}]
    try:
        text = _render(template, messages, schemas_of(get_profile(profile)), special)
    except FAILS:
        return None
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


@lru_cache(maxsize=8)
def _opening(folder: Path, _files: Stamp) -> tuple[Tokenizer, str, dict[str, str]] | None:
    """Tokenizer, chat template and special tokens of a folder, as long as its files are the same."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        alone = folder / "chat_template.jinja"
        template = alone.read_text(encoding="utf-8") if alone.is_file() else config.get("chat_template")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception:  # noqa: BLE001 # the tokenizers library raises bare Exception for a corrupt file
        return None
    if isinstance(template, list):
        template = next((one["template"] for one in template if one.get("name") in ("tool_use", "default")), None)
    if not isinstance(template, str):
        return None
    special = {key: _text(value) for key, value in config.items() if key.endswith("_token") and value is not None}
    return tokenizer, template, special


def _text(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _render(
    template: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], special: Mapping[str, str]
) -> str:
    def fail(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals |= {"raise_exception": fail, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment.from_string(template).render(
        messages=messages, tools=tools, add_generation_prompt=True, **special
    )
