"""Uses an OpenAI-compatible endpoint as the policy that sets goals for repositories and installs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from sandbox.harness.types import ToolCall
from sandbox.install.agent.conversation import PolicyFailed
from trainer.inference.chat import ChatClient, Endpoint, TranscriptTooLong
from trainer.inference.contract import InferenceError


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn in the form of `sandbox.install.agent`."""

    text: str
    calls: tuple[ToolCall, ...]
    error: str | None
    message: dict[str, Any]
    tokens: tuple[int, int]


class EndpointInstaller:
    """Client for one endpoint. Belongs to one event loop; use it as an async context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.model
        self._client = ChatClient(endpoint)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, at)

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        seconds: float,
    ) -> Turn:
        """Request the next turn. Raises PolicyFailed."""
        try:
            reply = await self._client.ask(messages, tools, max_tokens=max_tokens, temperature=0.0, seconds=seconds)
        except (InferenceError, TranscriptTooLong) as error:
            raise PolicyFailed(
                f"{self.name} gave no answer: {error}", remedy="Check the endpoint, or install without it"
            ) from error
        return Turn(reply.text, reply.calls, reply.error, reply.message, (reply.counted.read, reply.counted.written))
