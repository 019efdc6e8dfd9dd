"""Settings of a gateway channel: one pydantic model, stored as is. Changes are audited."""

from __future__ import annotations

import re
from typing import Any

from django.db import transaction
from django.db.models import F
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import UserError
from composer_web.gateway.models import Channel
from composer_web.live.hints import hint
from composer_web.policies.promotion.services import CHANNEL
from trainer.realtime.guards import CanaryGuards
from trainer.realtime.reading import EDIT_TOOLS
from trainer.realtime.signals import SignalReward


class Settings(BaseModel):
    """Settings of one channel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recording: bool = Field(default=False, description="Sessions that ask for it are recorded")
    retention_days: int = Field(default=30, ge=1, le=3650, description="Days until a recorded session is deleted")
    patterns: tuple[str, ...] = Field(
        default=(), max_length=50, description="Regular expressions of what is redacted besides secrets and e-mails"
    )
    requests_per_minute: int = Field(default=120, ge=1, le=1_000_000, description="Of one token")
    most_tokens: int = Field(default=4096, ge=1, description="Max tokens of one answer")
    answer_seconds: float = Field(default=300.0, gt=0, le=3600, description="Deadline of one answer")
    endpoints: tuple[str, ...] = Field(
        default=(), description="Policies behind endpoints that may be asked for by name as `model`"
    )
    edit_tools: tuple[str, ...] = Field(default=EDIT_TOOLS, description="Tools whose calls change files")
    reward: SignalReward = Field(default_factory=SignalReward)
    canary: CanaryGuards = Field(default_factory=CanaryGuards, description="When a canary is ended by itself")

    @field_validator("patterns")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not text or len(text) > 300:
                raise ValueError("a pattern has 1 to 300 characters")
            try:
                compiled = re.compile(text)
            except re.error as error:
                raise ValueError(f"{text!r} is no regular expression: {error}") from error
            if compiled.search(""):
                raise ValueError(f"{text!r} matches nothing at all everywhere; make it match at least one character")
            if NESTED.search(text):
                raise ValueError(f"{text!r} repeats what repeats, which may take for ever; write it without nesting")
        return value


NESTED = re.compile(r"[+*}]\)[+*{]")
"""A repeated group that ends in a repetition, which can cause exponential backtracking."""


def settings_of(channel: str = CHANNEL) -> Settings:
    """Stored settings, or the defaults."""
    return stored(channel)[0]


def stored(channel: str = CHANNEL) -> tuple[Settings, int]:
    """The settings, and the number of session deletions."""
    found = Channel.objects.filter(name=channel).values_list("configured", "erasures").first()
    return (Settings.model_validate(found[0]), found[1]) if found else (Settings(), 0)


def void_memories(channel: str = CHANNEL) -> None:
    """Invalidate the conversations that all processes remember, at the end of the transaction."""
    Channel.objects.get_or_create(name=channel)
    Channel.objects.filter(name=channel).update(erasures=F("erasures") + 1)


@transaction.atomic
def change(*, values: dict[str, Any], channel: str = CHANNEL, actor: User | None = None) -> Settings:
    """Change the given values, also within `reward` and `canary`. Raises UserError naming the field."""
    row, _ = Channel.objects.select_for_update().get_or_create(name=channel)
    before = Settings.model_validate(row.configured)
    try:
        after = Settings.model_validate(_within(before.model_dump(mode="json"), values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(where, f"{where}: {first['msg'].removeprefix('Value error, ')}") from error
    shown = {name: (old, new) for name, old in before if (new := getattr(after, name)) != old}
    row.configured, row.updated_by = after.model_dump(mode="json"), actor
    row.save()
    hint("promotion")
    audit(
        actor=actor,
        action="gateway.change",
        target=f"channel:{channel}",
        before={name: _plain(old) for name, (old, _) in shown.items()},
        after={name: _plain(new) for name, (_, new) in shown.items()},
    )
    return after


def _within(before: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Merge `values` into `before`. A wrong type in place of an object is left to the validation."""
    nested = {name for name, value in before.items() if isinstance(value, dict) and isinstance(values.get(name), dict)}
    return {**before, **values, **{name: {**before[name], **values[name]} for name in nested}}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
