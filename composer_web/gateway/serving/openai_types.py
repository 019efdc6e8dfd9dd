"""Chat-completions requests as clients send them. Unsupported features are rejected with an error, never ignored."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from composer_web.gateway.errors import BadRequest, from_validation

MAX_BODY = 4 << 20
"""Maximum bytes of one request."""
MAX_VALUES = 60_000
"""Maximum JSON values of one request: parsing and validation hold the GIL for some microseconds per value."""
MAX_PARTS = 1_000
"""Maximum text parts of one message."""
_OPENS_VALUE = np.isin(np.arange(256), list(b",[{"))
_PIECE = 1 << 18
"""Bytes that are counted at once, and characters from which a text is parsed so that other threads get the GIL."""
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
"""A surrogate pair, a lone surrogate, or the beginning of any other escape in a JSON string."""
_LONE = 6
"""Characters of a lone surrogate's escape. No other match of `_ESCAPE` has as many."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "audio": (),
    "functions": (),
    "function_call": (),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tool_choice": ("auto", "none"),
}
"""Fields accepted with these values only. Null is always accepted."""


class Open(BaseModel):
    """Clients send more than we read; what would change an answer is in NEUTRAL.

    Lists fail fast: only the first invalid item is told, and the errors of 10,000 others held the GIL for 0.25 s.
    """

    model_config = ConfigDict(extra="allow", frozen=True)


class Function(Open):
    name: str = Field(min_length=1, max_length=128)
    arguments: str = Field(default="{}", max_length=1 << 20)


class Call(Open):
    id: str = Field(max_length=200)
    type: Literal["function"] = "function"
    function: Function


class TextPart(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal["text"]
    text: str


class Message(Open):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    tool_calls: Annotated[list[Call], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _let_others_run(self) -> Self:
        """Python between two messages, where other threads get the GIL. 10,000 messages held it for 50 ms."""
        return self

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ToolFunction(Open):
    name: str = Field(pattern=r"^[\w.-]{1,128}$")
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


class Tool(Open):
    type: Literal["function"]
    function: ToolFunction


class StreamOptions(Open):
    include_usage: bool = False


class ChatRequest(Open):
    model: str = Field(min_length=1, max_length=200)
    messages: list[Message] = Field(min_length=1, max_length=10_000, fail_fast=True)
    tools: Annotated[list[Tool], Field(max_length=256, fail_fast=True)] | None = None
    tool_choice: Any = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    max_completion_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stop: str | list[str] | None = None
    seed: int | None = None
    user: str | None = Field(default=None, max_length=300)
    metadata: dict[str, str] | None = None

    @cached_property
    def offered(self) -> list[dict[str, Any]]:
        """Tools that the policy may call. Asked several times, and as long as the client likes: do not change it."""
        if self.tool_choice == "none":
            return []
        return [tool.model_dump(mode="json", exclude_none=True) for tool in self.tools or []]

    @property
    def stops(self) -> tuple[str, ...]:
        found = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in found if text)

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


def parse(body: bytes) -> ChatRequest:
    """Raises BadRequest naming the first invalid field."""
    if len(body) > MAX_BODY:
        raise BadRequest(f"the body has more than {MAX_BODY} bytes", code="body_too_large")
    if (count := _values(body)) > MAX_VALUES:
        raise BadRequest(
            f"the body holds {count} JSON values; at most {MAX_VALUES} are taken: merge text parts or shorten the transcript",
            code="body_too_large",
        )
    try:
        data = loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadRequest("the body must be a JSON object")
    for name, allowed in NEUTRAL.items():
        if data.get(name) is not None and data[name] not in allowed:
            offered = " or ".join(json.dumps(value) for value in allowed) or "null"
            raise BadRequest(f"{name}: the gateway offers only {offered}", param=name, code="unsupported_value")
    try:
        request = ChatRequest.model_validate(data)
    except ValidationError as error:
        raise from_validation(error) from error
    if (count := _argument_values(request)) > MAX_VALUES:
        raise BadRequest(
            f"arguments of tool calls hold {count} JSON values; at most {MAX_VALUES} are taken: shorten the transcript",
            param="messages",
            code="body_too_large",
        )
    if len(request.stops) > 4 or any(len(text) > 200 for text in request.stops):
        raise BadRequest("stop: at most 4 texts of 200 characters", param="stop")
    if request.metadata and (len(request.metadata) > 16 or any(len(v) > 512 for v in request.metadata.values())):
        raise BadRequest("metadata: at most 16 entries of 512 characters", param="metadata")
    return request


def _values(body: bytes) -> int:
    """Approximate number of values in a JSON text, within 0.1 s for any body. Contents of strings are not counted
    where it matters."""
    most = sum(body.count(sign) for sign in (b",", b"[", b"{"))
    if most <= MAX_VALUES:
        return most
    characters = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    count, quotes = 0, 0
    for start in range(0, len(characters), _PIECE):
        part = characters[start : start + _PIECE]
        seen = np.cumsum(part == ord('"'), dtype=np.uint32) + quotes
        count += int(np.count_nonzero((seen % 2 == 0) & _OPENS_VALUE[part]))
        quotes = int(seen[-1]) % 2
    return count


def _argument_values(request: ChatRequest) -> int:
    """JSON values inside call arguments, which are JSON in strings and are read to be rendered."""
    calls = (call for message in request.messages for call in message.tool_calls or ())
    return sum(_values(call.function.arguments.encode()) for call in calls)


def loads(text: bytes | str) -> Any:
    """Value of a JSON text, without lone surrogates. Raises ValueError, RecursionError."""
    found = text if isinstance(text, str) else text.decode()
    if r"\ud" in found or r"\uD" in found:
        found = _ESCAPE.sub(_without_lone_surrogate, found)
    if len(found) > _PIECE:
        return json.loads(found, object_hook=_let_others_run)
    return json.loads(found)


def _let_others_run(value: dict[str, Any]) -> dict[str, Any]:
    """Python between two objects, where other threads get the GIL."""
    return value


def _without_lone_surrogate(escape: re.Match[str]) -> str:
    """U+FFFD in place of a lone surrogate, which JSON can spell and no encoding can represent."""
    return r"\uFFFD" if len(escape[0]) == _LONE else escape[0]
