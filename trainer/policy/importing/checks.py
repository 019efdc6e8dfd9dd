"""Refusals of an import, each with what was found and what to do."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from trainer.policy.errors import PolicyUnreadable

log = logging.getLogger(__name__)
MARK = re.compile(r"<\|[\w/.-]+\|>|<｜[\w▁/.-]+｜>")
"""Texts that are control tokens wherever they stand in a template."""
ROLES = frozenset({"<|system|>", "<|user|>", "<|assistant|>"})
"""Those that models on Llama's vocabulary were trained with as text: no other mark is written, and none is a token."""
CONTROL = re.compile(r"</?s>|<(?:bos|eos|sop|eop)>|<(?:start|end)_of_turn>|\[gMASK\]|\[\|\w+\|\]|<seed:\w+>")
"""Texts that are control tokens where a rendered conversation has them; a template's code may name them for other uses."""
TOOL_PARTS = frozenset(
    f"[{slash}{name}]"
    for slash in ("", "/")
    for name in ("AVAILABLE_TOOLS", "TOOL_CALLS", "TOOL_RESULTS", "TOOL_CONTENT", "SYSTEM_PROMPT", "ARGS", "CALL_ID")
)
PARTS = TOOL_PARTS | {"[INST]", "[/INST]"}
"""Mistral's: control tokens in vocabularies that have tools, but `[INST]` is text in older ones and in Llama's."""
PART = re.compile(r"\[/?[A-Z_]+\]")
MAX_NAMED = 4
SCALED = {"linear", "dynamic", "yarn", "longrope"}
RESERVE = 1 << 30
"""Bytes of memory that a conversion leaves to the rest of the machine."""


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json`. Raises PolicyUnreadable."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyUnreadable(folder, "config.json", str(error), "Restore config.json of this model.") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise PolicyUnreadable(
            folder, "config.json", "it names no model_type", "Use the config.json that was published with the weights."
        )
    return config


def check_context(folder: Path, config: dict[str, Any]) -> None:
    """The context must be one that the rotary embedding supports. Raises PolicyUnreadable."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    context = config.get("max_position_embeddings")
    if not isinstance(rope, dict) or not isinstance(context, int):
        return
    kind = rope.get("rope_type", rope.get("type", "default"))
    trained = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    if kind == "default" or not isinstance(trained, int):
        return
    factor = float(rope.get("factor") or 1.0)
    reach = int(trained * factor) if kind in SCALED or kind == "llama3" else trained
    if context > reach:
        raise PolicyUnreadable(
            folder, "max_position_embeddings",
            f"{context} tokens, and its rotary embedding ({kind}, trained on {trained}, factor {factor:g}) supports {reach}",
            f"Set max_position_embeddings to {reach} in config.json, or rope_scaling.factor to {context / trained:g}.",
        )  # fmt: skip


def check_tokens(folder: Path, tokenizer: PreTrainedTokenizerBase, config: dict[str, Any]) -> None:
    """The vocabulary must have the control tokens that the template writes, and fit the model. Raises PolicyUnreadable."""
    if lost := _lost_marks(tokenizer):
        raise PolicyUnreadable(
            folder, "tokenizer",
            f"its template writes {', '.join(lost[:MAX_NAMED])}, which the tokenizer does not have as special tokens",
            "Use the tokenizer.json and tokenizer_config.json that were published with the weights, or another template.",
        )  # fmt: skip
    rows = (config.get("text_config") or config).get("vocab_size")
    if isinstance(rows, int) and rows < len(tokenizer):
        raise PolicyUnreadable(
            folder, "tokenizer", f"it has {len(tokenizer)} tokens and the model {rows}",
            "Use the tokenizer that the weights were trained with.",
        )  # fmt: skip
    if tokenizer.eos_token_id is None:
        raise PolicyUnreadable(
            folder,
            "tokenizer",
            "it has no eos_token",
            "Set eos_token in tokenizer_config.json to the token that ends a text.",
        )


def _lost_marks(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Control tokens of the template that the tokenizer cuts into pieces."""
    added = tokenizer.get_added_vocab()
    marks = set(MARK.findall(str(tokenizer.chat_template or "")))
    as_text = marks <= ROLES and not any(MARK.fullmatch(token) for token in added)
    written = set() if as_text else marks
    shown = _shown(tokenizer)
    written |= set(CONTROL.findall(shown))
    parts = PARTS & set(PART.findall(shown))
    if parts & TOOL_PARTS or PARTS & added.keys():
        written |= parts
    return sorted(m for m in written if m not in added and len(tokenizer.encode(m, add_special_tokens=False)) != 1)


def _shown(tokenizer: PreTrainedTokenizerBase) -> str:
    """Conversations as the template shows them; those that it refuses are left out (a later check says so)."""
    system, user = {"role": "system", "content": "x"}, {"role": "user", "content": "x"}
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "x", "arguments": {"x": "x"}}}
    answered = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "x", "tool_call_id": "abcdefghi", "content": "x"},
        {"role": "assistant", "content": "x"},
    ]
    about = {"name": "x", "description": "x", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
    tools = [{"type": "function", "function": about}]
    asked: list[tuple[Any, Any]] = [([user], None), ([system, user], None), ([user], tools), ([user, *answered], tools)]
    shown = []
    for messages, known in asked:
        try:
            shown.append(
                tokenizer.apply_chat_template(messages, tools=known, tokenize=False, add_generation_prompt=True)
            )
        except Exception as error:  # noqa: BLE001 # templates raise what they like
            log.info("a conversation that the template refuses is not looked at: %s", error)
    return "\n".join(map(str, shown))


def check_memory(path: Path, needed: int, what: str) -> None:
    """Raises PolicyUnreadable: `what` takes `needed` bytes, and the machine has fewer free."""
    free = available_memory()
    if needed > free - RESERVE:
        raise PolicyUnreadable(
            path, "memory", f"{what} takes {gib(needed)}, and this machine has {gib(free)} free",
            "Import it on a machine with more memory, or convert it there and import the folder.",
        )  # fmt: skip


def available_memory() -> int:
    """Bytes that can be allocated without swapping, as the kernel estimates."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise AssertionError("every Linux kernel since 3.14 reports MemAvailable")


def gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
