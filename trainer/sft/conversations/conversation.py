"""A conversation between users, an assistant and its tools, independent of any tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandbox.harness.types import ToolCall

Role = Literal["system", "user", "assistant", "tool"]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(Frozen):
    role: Role
    content: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """For a tool message: the call that it answers."""
    train: bool = True
    """For an assistant message: whether it is trained on, or only read."""

    @property
    def trained(self) -> bool:
        return self.role == "assistant" and self.train


class Window(Frozen):
    """One context window as it was sampled here. Training uses these exact tokens where the tokenizer is the same."""

    tokens: list[int]
    loss_mask: list[int]

    @model_validator(mode="after")
    def _one_each(self) -> Window:
        if len(self.tokens) != len(self.loss_mask):
            raise ValueError(f"{len(self.loss_mask)} marks for {len(self.tokens)} tokens")
        return self


class Conversation(Frozen):
    source: str
    """Name of the source file or rollouts."""
    place: str
    """Position in the source: a line, a row, a rollout."""
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    """Tool definitions as the policy sees them, in OpenAI's function format."""
    task: str = ""
    bundle_hash: str = ""
    """Hash of the underlying task's bundle, where known."""
    windows: tuple[Window, ...] = ()
    tokenizer: str = ""
    """Fingerprint of the tokenizer and template that `windows` were sampled with."""
    whole: bool = True
    """False where the assistant summarized its work in between; then the messages are not what it read at the end."""

    @model_validator(mode="after")
    def _fits_together(self) -> Conversation:
        if not any(message.trained for message in self.messages):
            raise ValueError("no message of the assistant is to be trained on")
        if self.messages[0].role == "assistant" or all(message.role != "user" for message in self.messages):
            raise ValueError("no message of a user comes before the assistant's")
        open_calls: set[str] = set()
        for message in self.messages:
            if message.role == "tool" and message.call_id not in open_calls:
                raise ValueError(f"a tool answers the call {message.call_id!r}, which was not made before")
            open_calls |= {call.id for call in message.calls}
        return self

    def texts(self) -> Iterator[str]:
        """All texts of the conversation, for content comparisons."""
        for message in self.messages:
            yield from filter(None, (message.content, message.thinking))
            for call in message.calls:
                yield from (value if isinstance(value, str) else json.dumps(value) for value in call.arguments.values())

    @property
    def key(self) -> str:
        """Content key, independent of source, spacing and call ids; copies have the same key."""
        said = [
            [m.role, m.content.split(), m.thinking.split(), m.trained, [[c.name, c.arguments] for c in m.calls]]
            for m in self.messages
        ]
        return hashlib.sha256(json.dumps([said, self.tools], sort_keys=True).encode()).hexdigest()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class Unfit(Frozen):
    """Why a conversation cannot be used for training."""

    source: str
    place: str
    reason: str
    detail: str = ""


class SourceFacts(Frozen):
    name: str
    kind: str
    digest: str = Field(description="SHA-256 of the file, or of the filters and ids of rollouts")
    conversations: int = 0
