"""Response bodies: a whole chat completion, and its parts as server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from sandbox.harness.types import ToolCall


@dataclass(frozen=True, slots=True)
class Usage:
    read: int
    written: int
    cached: int = 0

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.read,
            "completion_tokens": self.written,
            "total_tokens": self.read + self.written,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


@dataclass(frozen=True, slots=True)
class Said:
    """Final content of one response."""

    text: str
    calls: tuple[ToolCall, ...]
    finish: str
    """stop, length or tool_calls."""
    usage: Usage
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Fields shared by all parts of one response. `served` names the policy version."""

    id: str
    model: str
    served: str
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(self, said: Said) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or (None if said.calls else "")}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [_call(call) for call in said.calls]
        choice = {"index": 0, "message": message, "finish_reason": said.finish, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": said.usage.body()}

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def opening(self) -> bytes:
        return self.chunk({"role": "assistant", "content": ""})

    def calls(self, calls: Sequence[ToolCall]) -> bytes:
        return self.chunk({"tool_calls": [{"index": index, **_call(call)} for index, call in enumerate(calls)]})

    def usage(self, usage: Usage) -> bytes:
        return event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage.body()})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.served,
        }


def event(body: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
