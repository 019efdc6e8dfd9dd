"""What a channel serves: a promoted policy version, and beside it perhaps a canary with a share of the sessions.

The gateway asks `current`. Every change is a row of its own, gated, audited, and undone by `rollback`.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.alerts.models import Event
from composer_web.alerts.telling import tell
from composer_web.live.hints import hint
from composer_web.core.errors import Conflict, UserError
from composer_web.policies.in_use import hold
from composer_web.policies.promotion import gate
from composer_web.policies.models import Policy, Promotion
from composer_web.policies.selectors import Weights, cannot_play, check_plays, resolve

CHANNEL = "production"
MAX_ROWS = 500
TOLD = {"promote": Event.POLICY_PROMOTED, "rollback": Event.POLICY_ROLLED_BACK, "end": Event.CANARY_ENDED}
"""Kinds of changes of which webhooks are told."""


def history(channel: str = CHANNEL) -> QuerySet[Promotion]:
    """Newest first, with policies and people."""
    return Promotion.objects.filter(channel=channel).select_related("policy", "canary_policy", "created_by")


def current(channel: str = CHANNEL) -> Promotion | None:
    """What the channel serves now; None before the first promotion."""
    return history(channel).first()


def canary_since(row: Promotion) -> datetime:
    """When its canary began to stand beside what is promoted: a change of the share begins nothing anew."""
    began = row.created_at
    sides = ("policy_id", "version", "canary_policy_id", "canary_version")
    for before in Promotion.objects.filter(channel=row.channel, pk__lt=row.pk)[:MAX_ROWS]:
        if any(getattr(before, side) != getattr(row, side) for side in sides):
            break
        began = before.created_at
    return began


class Preview(BaseModel):
    """What would come of promoting a version now."""

    model_config = ConfigDict(frozen=True)

    policy: str
    open: bool = Field(description="Whether it would be let through")
    why: str = Field(description="Why not, where no rule says so")
    outcomes: list[gate.Outcome]


def preview(reference: str, *, channel: str = CHANNEL) -> Preview:
    """The gate as it would judge this version now. Raises UserError."""
    weights, now = resolve(reference), current(channel)
    name = weights.policy.at(weights.version)
    if problem := weights.policy.template_problem:
        return Preview(policy=name, open=False, why=cannot_play(weights.policy.name, problem), outcomes=[])
    if now and (now.policy_id, now.version) == (weights.policy.pk, weights.version):
        return Preview(policy=name, open=False, why=f"{name} is promoted already", outcomes=[])
    seen = gate.check(channel=channel, policy=weights.policy, version=weights.version, promoted=now)
    return Preview(policy=name, open=all(outcome.ok for outcome in seen), why="", outcomes=seen)


@transaction.atomic
def promote(*, reference: str, channel: str = CHANNEL, note: str = "", actor: User | None = None) -> Promotion:
    """Serve this version to everybody; a canary ends. Raises UserError when the gate is shut."""
    before = locked(channel)
    weights = resolve(reference)
    if before and (before.policy_id, before.version) == (weights.policy.pk, weights.version):
        raise Conflict(f"{weights.policy.at(weights.version)} is promoted already", "policy")
    seen = _through(channel, weights, before)
    return _record(
        Promotion(channel=channel, kind="promote", policy=weights.policy, version=weights.version, note=note),
        before,
        seen,
        actor,
    )


@transaction.atomic
def canary(
    *, reference: str, share: float, channel: str = CHANNEL, note: str = "", actor: User | None = None
) -> Promotion:
    """Serve this version to a share of new sessions, beside what is promoted. Asked again, it changes the share."""
    if not (math.isfinite(share) and 0 < share < 1):
        raise UserError("share", f"the share of a canary lies between 0 and 1, not {share}; promote it for all")
    before = locked(channel)
    if before is None:
        raise Conflict(f"nothing is promoted on {channel} yet: a canary stands beside something", "channel")
    weights = resolve(reference)
    if (before.policy_id, before.version) == (weights.policy.pk, weights.version):
        raise Conflict(f"{weights.policy.at(weights.version)} is promoted already", "policy")
    row = Promotion(
        channel=channel,
        kind="canary",
        policy=before.policy,
        version=before.version,
        canary_policy=weights.policy,
        canary_version=weights.version,
        canary_share=share,
        note=note,
    )
    return _record(row, before, _through(channel, weights, before), actor)


@transaction.atomic
def end_canary(*, channel: str = CHANNEL, note: str = "", guard: bool = False, actor: User | None = None) -> Promotion:
    """Serve only what is promoted; `guard`: nobody asked for it, a bound was broken. Raises Conflict without a canary."""
    before = locked(channel)
    if before is None or before.canary_policy is None:
        raise Conflict(f"{channel} has no canary", "channel")
    row = Promotion(channel=channel, kind="end", policy=before.policy, version=before.version, note=note, guard=guard)
    return _record(row, before, [], actor)


@transaction.atomic
def rollback(*, channel: str = CHANNEL, note: str = "", actor: User | None = None) -> Promotion:
    """Go back to what was promoted before; a canary ends. No gate: it has served already. Raises Conflict, UserError."""
    before = locked(channel)
    target = previous(channel)
    if before is None or target is None:
        raise Conflict(f"nothing was promoted on {channel} before", "channel")
    policy, version = target
    hold(resolve(f"{policy.name}@{version}"), holder(channel))  # refuses weights that are gone
    row = Promotion(channel=channel, kind="rollback", policy=policy, version=version, note=note)
    return _record(row, before, [], actor)


def previous(channel: str = CHANNEL) -> tuple[Policy, int] | None:
    """What a rollback goes back to. Promotions stack up; a rollback takes the top one off."""
    stack: list[tuple[Policy, int]] = []
    for row in reversed(history(channel).filter(kind__in=["promote", "rollback"])[:MAX_ROWS]):
        if row.kind == "promote":
            stack.append((row.policy, row.version))
        else:
            stack = stack[:-1]
    return stack[-2] if len(stack) > 1 else None


def holder(channel: str) -> str:
    """The name under which a channel keeps checkpoints."""
    return f"channel-{channel}"


def locked(channel: str) -> Promotion | None:
    """The newest row; until the transaction ends nobody else changes the channel."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"channel:{channel}"])
    return current(channel)


def _through(channel: str, weights: Weights, promoted: Promotion | None) -> list[gate.Outcome]:
    """Raises UserError: sessions call tools, which the policy's template must be able to show, or the gate is shut."""
    check_plays(weights.policy)
    hold(weights, holder(channel))
    seen = gate.check(channel=channel, policy=weights.policy, version=weights.version, promoted=promoted)
    if shut := [outcome for outcome in seen if not outcome.ok]:
        whys = "; ".join(f"{outcome.rule.about}: {outcome.why}" for outcome in shut)
        raise UserError("policy", f"the gate is shut: {whys}", code="gate_shut")
    return seen


def _record(row: Promotion, before: Promotion | None, seen: list[gate.Outcome], actor: User | None) -> Promotion:
    row.gate, row.created_by, row.note = [one.model_dump() for one in seen], actor, row.note[:2000]
    row.full_clean()
    row.save()
    audit(
        actor=actor,
        action=f"channel.{row.kind}",
        target=f"channel:{row.channel}",
        before=_shown(before),
        after=_shown(row),
        note=row.note,
    )
    hint("promotion")
    if row.kind in TOLD:
        _tell(row, before, TOLD[row.kind])
    return row


def _tell(row: Promotion, before: Promotion | None, event: Event) -> None:
    now, was = row.policy.at(row.version), before.policy.at(before.version) if before else None
    facts: dict[str, Any] = {"channel": row.channel, "policy": now, "before": was, "note": row.note}
    if event is Event.CANARY_ENDED:
        ended = _shown(before)["canary"]
        facts |= {"canary": ended, "guard": row.guard}
        title, what = f"A canary was ended: {ended}", f"{row.channel} serves only {now}, {ended} no more"
    else:
        title, what = f"{event.label}: {now}", f"{row.channel} serves {now}" + (f" instead of {was}" if was else "")
    tell(
        event,
        title=title,
        message=what + (f": {row.note}" if row.note else ""),
        about=f"channel:{row.channel}",
        path="/promotion/",
        by=row.created_by.get_username() if row.created_by else None,
        **facts,
    )


def _shown(row: Promotion | None) -> dict[str, object]:
    if row is None:
        return {}
    served: dict[str, object] = {"promoted": row.policy.at(row.version)}
    if row.canary_policy is not None and row.canary_version is not None:
        served |= {"canary": row.canary_policy.at(row.canary_version), "share": row.canary_share}
    return served
