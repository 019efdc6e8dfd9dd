"""A canary is ended by itself when it edits less, asks more or breaks more calls than what is promoted."""

from __future__ import annotations

import logging

from django.db import transaction

from composer_web.gateway import selectors
from composer_web.gateway.models import SessionTurn
from composer_web.policies import promotion
from composer_web.policies.models import Promotion
from trainer.realtime.guards import Guards, Rates, broken

log = logging.getLogger(__name__)


@transaction.atomic
def watch_canary(guards: Guards | None = None, *, channel: str = promotion.CHANNEL) -> Promotion | None:
    """The end of the canary, when there was reason; the reason is its note. Both sides are judged since the canary began."""
    current = promotion.current(channel)
    if current is None or current.canary_policy_id is None or current.canary_version is None:
        return None
    turns = SessionTurn.objects.filter(session__channel=channel, created_at__gte=current.created_at)
    promoted = turns.filter(policy=current.policy_id, version=current.version)
    canary = turns.filter(policy=current.canary_policy_id, version=current.canary_version)
    why = broken(guards or Guards(), Rates.of(selectors.facts(promoted)), Rates.of(selectors.facts(canary)))
    if not why:
        return None
    log.warning("the canary of %s is ended: %s", channel, "; ".join(why))
    return promotion.end_canary(channel=channel, note=f"ended by its guard: {'; '.join(why)}")
