"""Comparison of the canary with the promoted version, and automatic end of a canary that violates a guard."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field

from composer_web.gateway import selectors
from composer_web.gateway.configuration import settings_of
from composer_web.gateway.models import SessionTurn
from composer_web.policies import promotion
from composer_web.policies.models import Promotion
from trainer.realtime.comparing import Row
from trainer.realtime.guards import CanaryGuards, canary

log = logging.getLogger(__name__)


class Comparison(BaseModel):
    """What recorded sessions show of both sides since the canary began, and by which guards that is judged."""

    model_config = ConfigDict(frozen=True)

    promoted: str
    canary: str
    share: float = Field(description="Of new sessions, that the canary answers")
    since: datetime
    recording: bool = Field(description="Whether sessions are recorded now; what is not is not seen here")
    promoted_turns: int
    canary_turns: int
    promoted_sessions: int
    canary_sessions: int
    guards: CanaryGuards
    rows: list[Row]

    @property
    def broken(self) -> list[str]:
        return [row.why for row in self.rows if row.standing == "broken"]


def compare(channel: str = promotion.CHANNEL) -> Comparison | None:
    """None without a canary."""
    current = promotion.current(channel)
    return None if current is None else of(current)


def of(current: Promotion) -> Comparison | None:
    """Comparison for the newest promotion of a channel. `current` needs no reload."""
    if current.canary_policy is None or current.canary_version is None:
        return None
    settings, since = settings_of(current.channel), promotion.canary_since(current)
    turns = SessionTurn.objects.filter(session__channel=current.channel, created_at__gte=since)
    before = selectors.in_use(turns.filter(policy=current.policy_id, version=current.version), settings.reward)
    now = selectors.in_use(
        turns.filter(policy=current.canary_policy_id, version=current.canary_version), settings.reward
    )
    return Comparison(
        promoted=current.policy.at(current.version),
        canary=current.canary_policy.at(current.canary_version),
        share=current.canary_share,
        since=since,
        recording=settings.recording,
        promoted_turns=before.rates.turns,
        canary_turns=now.rates.turns,
        promoted_sessions=before.sessions,
        canary_sessions=now.sessions,
        guards=settings.canary,
        rows=canary(settings.canary, before, now),
    )


@transaction.atomic
def watch_canary(channel: str = promotion.CHANNEL) -> Promotion | None:
    """End the canary if a guard is violated. The reason is stored as its note."""
    current = promotion.locked(channel)  # what is compared is what ends, whoever promotes meanwhile
    found = of(current) if current else None
    if found is None or not found.broken:
        return None
    why = "; ".join(found.broken)
    log.warning("the canary of %s is ended: %s", channel, why)
    return promotion.end_canary(channel=channel, note=f"ended by its guard: {why}", guard=True)
