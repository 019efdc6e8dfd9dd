"""The toy policy's calls: one JSON object a line, nothing else. Its template has no mark for calls and no thinking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from sandbox.harness.types import ToolCall
from trainer.policy.rendering.chat import ParsedTurn, call_json, read_calls
from trainer.policy.rendering.template import TemplateRenderer


def extract(text: str) -> list[str] | None:
    """The JSON text of each call; an empty list when the turn has none, None when a call is cut off."""
    body = text.strip()
    if not body.startswith("{"):
        return []
    decoder, at = json.JSONDecoder(), 0
    found: list[str] = []
    while at < len(body):
        try:
            _, end = decoder.raw_decode(body, at)
        except ValueError:
            return None
        except RecursionError:
            return [*found, body[at:]]  # JSON, nested too deeply to be read: refused as such
        found.append(body[at:end])
        at = end + len(body[end:]) - len(body[end:].lstrip())
    return found


def write(calls: Sequence[ToolCall]) -> str:
    return "\n".join(call_json(call) for call in calls)


class ToyRenderer(TemplateRenderer):
    """The toy policy's template and its bare calls."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str = "toy") -> None:
        super().__init__(tokenizer, name)
        self.call_marks, self.thinks = (), False

    def turn(self, calls: Sequence[ToolCall], text: str = "") -> list[int]:
        return [*self.safe.plain(text + write(calls)), self.turn_end_id]

    def parse(
        self, token_ids: Sequence[int], *, tools: Sequence[Mapping[str, Any]] = (), prompt: Sequence[int] = ()
    ) -> ParsedTurn:
        text = self.text(self.sampled(token_ids))
        blocks = extract(text)
        if blocks is None:
            return ParsedTurn(text, error="the tool call is not complete JSON", content=text)
        try:
            return ParsedTurn(text, calls=read_calls(blocks), content="" if blocks else text)
        except ValueError as error:
            return ParsedTurn(text, error=f"the tool call does not parse: {error}"[:300], content=text)
