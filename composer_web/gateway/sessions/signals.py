"""Writes of signals: user actions after a response. Duplicate signals are stored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from composer_web.accounts.models import User
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.gateway.models import Session, SignalRow
from composer_web.gateway.schemas import SignalIn
from composer_web.live.hints import hint

MAX_SIGNALS = 1000
"""Signals per session."""


@dataclass(frozen=True, slots=True)
class Taken:
    new: int
    known: int


@transaction.atomic
def take(*, owner: User, session: str, signals: Sequence[SignalIn]) -> Taken:
    """Store the signals that a client reports of its own session. Raises NotFound, UserError, Conflict without
    storing any."""
    row = Session.objects.select_for_update().filter(owner=owner, client_id=session).first()
    if row is None:
        raise NotFound("recorded session", repr(session[:120]))
    known = {signal.client_id: signal for signal in row.signals.all()}
    made: list[SignalRow] = []
    for place, given in enumerate(signals):
        if given.turn is not None and given.turn >= row.turns:
            raise UserError(
                f"signals.{place}.turn", f"the session has {row.turns} recorded turns, counted from 0; not {given.turn}"
            )
        new = SignalRow(
            session=row, client_id=given.id, kind=given.kind, turn=given.turn, value=given.value, after=given.after
        )
        before = known.setdefault(given.id, new)
        if (before.kind, before.turn, before.value, before.after) != (new.kind, new.turn, new.value, new.after):
            raise Conflict(
                f"the signal {given.id!r} was sent before with another content; signals never change, send a new one",
                f"signals.{place}.id",
            )
        if before is new:
            made.append(new)
    if len(known) > MAX_SIGNALS:
        raise UserError("signals", f"a session takes {MAX_SIGNALS} signals; {len(known) - len(made)} are there")
    SignalRow.objects.bulk_create(made)
    if made and row.canary:
        hint("promotion")
    return Taken(len(made), len(signals) - len(made))
