"""Schemas of the gateway's JSON API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field, model_validator

from composer_web.api.schemas import Body
from trainer.realtime.signals import Signal, SignalKind


class SignalIn(Body):
    id: str = Field(min_length=1, max_length=120, description="Your own name of it: sent twice, kept once")
    kind: SignalKind
    turn: int | None = Field(default=None, ge=0, le=100_000, description="Turn from 0; null: the whole session")
    value: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="Share kept, or seconds of latency")
    after: str = Field(
        default="", pattern=r"^(\d{1,6} (minutes|commits))?$", description="When an edit was looked at: `30 minutes`"
    )

    @model_validator(mode="after")
    def _signal(self) -> SignalIn:
        Signal(kind=self.kind, turn=self.turn, value=self.value)
        if self.kind == "edit_kept" and not self.after:
            raise ValueError("edit_kept says in `after` when it was looked at: `30 minutes` or `2 commits`")
        return self


class SignalsIn(Body):
    session: str = Field(min_length=1, max_length=120, description="The session as it is named in requests")
    signals: list[SignalIn] = Field(min_length=1, max_length=200)


class SignalsOut(Schema):
    new: int
    known: int = Field(description="Were sent before")


class SessionOut(Schema):
    id: int
    client_id: str
    policy_name: str
    version: int
    canary: bool
    turns: int
    output_tokens: int
    policy_tokens: int = Field(deprecated=True, description="The same as output_tokens; removed after release 0.2")
    edits: int = Field(description="Turns that edit")
    questions: int = Field(description="Turns that only ask")
    malformed: int = Field(description="Turns with a malformed tool call")
    redactions: int
    opened_at: datetime
    last_at: datetime
    expires_at: datetime

    @staticmethod
    def resolve_policy_tokens(session: Any) -> int:
        """`session` is a row, or what was made of one already."""
        return int(session["output_tokens"] if isinstance(session, dict) else session.output_tokens)


class PartOut(Schema):
    name: str
    value: float
    weight: float


class TurnOut(Schema):
    index: int
    text: str
    calls: list[dict[str, Any]]
    messages: list[dict[str, Any]] = Field(description="Of the transcript, those that are new")
    malformed: str
    question: bool
    edits: int
    tokens: int
    versions: list[int]
    first_token_ms: float
    reward: float | None = Field(description="null: nobody said anything about it")
    parts: list[PartOut]


class SessionDetailOut(SessionOut):
    recorded: list[TurnOut]
    signals: list[dict[str, Any]]


class ErasedOut(Schema):
    sessions: int


class UserIn(Body):
    user: str = Field(min_length=1, max_length=300, description="The user as the client names them in its requests")


class SessionDraftIn(Body):
    task: str = Field(max_length=100, description="Task whose environment the draft gets")
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")
    instruction: str = Field(min_length=1, max_length=20_000)
    category: str = Field(default="debug", max_length=20)
