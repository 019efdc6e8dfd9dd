"""Client for a policy behind an OpenAI-compatible endpoint: messages and tool schemas in, text and tool calls out.

Such endpoints report token counts only, so their trajectories are evaluated and never trained on. Every endpoint
failure is an InferenceError, which the rollout counts as infrastructure and never as a score.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from sandbox.harness.types import ToolCall
from sandbox.network.guard import AsyncTransport, Guard, Refused, Unknown
from sandbox.storable import parse_json
from trainer.inference.contract import InferenceError, InferenceRefused

MAX_ANSWER = 16 << 20
"""Maximum size of one answer, in bytes."""
MAX_PAUSE = 8.0
"""Maximum pause between two attempts, whatever the endpoint requests."""
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length"})
"""Endpoint error codes for a transcript that exceeds the model's context window."""


class Endpoint(BaseModel):
    """Address and parameters of a model. `url` is the base (`https://host/v1`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    model: str
    key: SecretStr = SecretStr("")
    effort: str = Field(default="", description="Sent as reasoning_effort; empty: not sent")
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: bool = Field(default=True, description="Whether the endpoint takes a temperature")
    parameters: dict[str, Any] = Field(default_factory=dict, description="More fields of each request")
    guard: Guard | None = None
    """Checks the host's resolved addresses; None where the installation's own settings name the host."""


class Counted(BaseModel):
    """Token counts of one answer, as the endpoint reports them."""

    model_config = ConfigDict(frozen=True)

    read: int = Field(ge=0)
    cached: int = Field(default=0, ge=0)
    """Input tokens served from the endpoint's cache."""
    written: int = Field(ge=0)
    thinking: int = Field(default=0, ge=0)
    """Output tokens of hidden reasoning."""


class ChatReply(BaseModel):
    """One turn. `error` explains why an intended call does not parse; then there are no calls."""

    model_config = ConfigDict(frozen=True)

    text: str
    calls: tuple[ToolCall, ...]
    error: str | None
    finish: str
    counted: Counted
    message: dict[str, Any]
    """The assistant's message as the next request must repeat it."""


class TranscriptTooLong(Exception):
    """The transcript exceeds the model's context window. The policy caused this, not the endpoint."""


class ChatClient:
    """Client for one endpoint. Belongs to one event loop; use it as an async context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        key = endpoint.key.get_secret_value()
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            follow_redirects=False,
            trust_env=False,
            transport=None if endpoint.guard is None else AsyncTransport(endpoint.guard),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        temperature: float,
        seconds: float,
    ) -> ChatReply:
        """Request the next turn and retry until `seconds` have passed. Raises InferenceError, TranscriptTooLong."""
        body: dict[str, Any] = {
            **self.endpoint.parameters,
            "model": self.endpoint.model,
            "messages": list(messages),
            self.endpoint.limit_field: max_tokens,
        }
        if tools:
            body["tools"] = list(tools)
        if self.endpoint.temperature:
            body["temperature"] = temperature
        if self.endpoint.effort:
            body["reasoning_effort"] = self.endpoint.effort
        # In threads: transcripts and answers of megabytes would hold up everything else on this loop.
        written = await asyncio.to_thread(_written, body)
        return await asyncio.to_thread(read_reply, await self._post(written, seconds))

    async def _post(self, body: bytes, seconds: float) -> Any:
        end, tries, problem = time.monotonic() + seconds, 0, "nothing was asked"
        while (left := end - time.monotonic()) > 0:
            tries += 1
            pause = min(MAX_PAUSE, 0.25 * 2.0 ** min(tries, 6)) * random.uniform(0.5, 1.0)
            try:
                async with asyncio.timeout(left):
                    status, headers, content = await self._once(body)
            except Refused as error:
                raise InferenceRefused(f"{self._name} may not be asked: {error}") from error
            except (httpx.HTTPError, TimeoutError, Unknown) as error:
                problem = f"{type(error).__name__} {error}".strip()
            else:
                if status == 200:
                    return await asyncio.to_thread(_json, content)
                problem = f"status {status}: {_said(content)}"
                if _code(content) in TOO_LONG:
                    raise TranscriptTooLong(problem)
                if status not in AGAIN:
                    raise InferenceRefused(f"{self._name} refuses ({problem}); check its address, model and key")
                asked = headers.get("retry-after", "")
                pause = min(MAX_PAUSE, float(asked)) if asked.isdecimal() else pause
            await asyncio.sleep(min(pause, max(0.0, end - time.monotonic())))
        raise InferenceError(f"{self._name} gave no answer within {seconds:.3g} s, {tries} tries; last: {problem}")

    async def _once(self, body: bytes) -> tuple[int, httpx.Headers, bytes]:
        address = f"{self.endpoint.url.rstrip('/')}/chat/completions"
        headers, found = {"content-type": "application/json"}, bytearray()
        async with self._http.stream("POST", address, content=body, headers=headers, timeout=None) as answer:
            async for part in answer.aiter_bytes():
                found += part
                if len(found) > MAX_ANSWER:
                    raise InferenceError(f"{self._name} answers with more than {MAX_ANSWER} bytes")
            return answer.status_code, answer.headers, bytes(found)

    @property
    def _name(self) -> str:
        return f"the endpoint at {httpx.URL(self.endpoint.url).host} ({self.endpoint.model})"


def read_reply(data: Any) -> ChatReply:
    """Parse a chat completion. Raises InferenceError when it does not have the documented shape."""
    try:
        choice = data["choices"][0]
        said = choice["message"]
        text = said.get("content") or ""
        wanted = said.get("tool_calls") or []
        usage = data.get("usage")
        if not isinstance(usage, dict):
            raise InferenceError("the endpoint does not say how many tokens it used; it must answer with `usage`")
        counted = Counted(
            read=usage["prompt_tokens"],
            written=usage["completion_tokens"],
            cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            thinking=(usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0,
        )
        calls, error = _calls(wanted)
        finish = str(choice.get("finish_reason") or "stop")
        if not isinstance(text, str):
            raise TypeError("content is no text")
    except (KeyError, IndexError, TypeError, AttributeError, ValidationError) as wrong:
        raise InferenceError(f"the endpoint does not answer in the shape of chat completions: {wrong!r}") from wrong
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if wanted:
        message["tool_calls"] = wanted
    return ChatReply(text=text, calls=calls, error=error, finish=finish, counted=counted, message=message)


def _calls(wanted: Sequence[Any]) -> tuple[tuple[ToolCall, ...], str | None]:
    """Convert calls to the harness's form; the first that does not parse makes the turn malformed."""
    calls = []
    for one in wanted:
        identity, function = str(one["id"]), one["function"]
        name, written = str(function["name"]), function.get("arguments") or "{}"
        try:
            arguments = parse_json(written)
        except ValueError as error:
            return (), f"the arguments of {name!r} are not JSON: {error}"[:300]
        if not isinstance(arguments, dict):
            return (), f"arguments of {name!r} must be an object, found {type(arguments).__name__}"
        calls.append(ToolCall(id=identity, name=name, arguments=arguments))
    return tuple(calls), None


def _written(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InferenceError(f"the endpoint's answer is not JSON: {error}") from error


def _error(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {"message": content[:200].decode(errors="replace")}
    error = found.get("error", found) if isinstance(found, dict) else found
    return error if isinstance(error, dict) else {"message": str(error)}


def _said(content: bytes) -> str:
    return str(_error(content).get("message", ""))[:300]


def _code(content: bytes) -> str:
    return str(_error(content).get("code", ""))
