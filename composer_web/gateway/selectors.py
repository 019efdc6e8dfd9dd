"""Reads of recorded sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from composer_web.gateway.configuration import Settings, settings_of
from composer_web.gateway.models import Session, SessionTurn
from composer_web.gateway.recording import turns_of
from composer_web.ops.errors import NotFound
from trainer.realtime.reading import TurnFacts
from trainer.realtime.sessions import RecordedTurn
from trainer.realtime.signals import Signal, total
from trainer.rollouts.types import RewardPart


def sessions() -> QuerySet[Session]:
    """For lists: policy, owner, and how many signals of each direction there are."""
    rows = Session.objects.select_related("policy", "owner").annotate(
        good=Count("signals", distinct=True, filter=Q(signals__kind__in=["accept", "edit_kept"])),
        bad=Count("signals", distinct=True, filter=Q(signals__kind__in=["reject", "dissatisfied"])),
    )
    return rows.order_by("-pk")  # grouped queries have no order of their own


def whole() -> Iterator[Session]:
    """All sessions with what their files hold, oldest first, some at a time."""
    return sessions().order_by("pk").prefetch_related("recorded", "signals").iterator(chunk_size=50)


def get(pk: int) -> Session:
    """Raises NotFound."""
    found = sessions().filter(pk=pk).first()
    if found is None:
        raise NotFound("recorded session", pk)
    return found


def signals_of(session: Session) -> list[Signal]:
    """In the order in which they came."""
    return [Signal(kind=row.kind, turn=row.turn, value=row.value) for row in session.signals.all()]  # type: ignore[arg-type]


@dataclass(frozen=True)
class ShownTurn:
    """A turn as pages and the API show it. `reward` is None where nobody said anything about it."""

    turn: RecordedTurn
    parts: tuple[RewardPart, ...]

    @property
    def reward(self) -> float | None:
        return total(self.parts) if self.parts else None

    @property
    def versions(self) -> list[int]:
        return sorted(set(self.turn.versions))


def shown(session: Session, configured: Settings | None = None) -> list[ShownTurn]:
    """Turns with their reward parts as they are configured now. Raises ArtifactError."""
    turns = turns_of(session)
    parts = (configured or settings_of(session.channel)).reward.parts(
        [turn.facts for turn in turns], signals_of(session)
    )
    return [ShownTurn(turn, tuple(of_turn)) for turn, of_turn in zip(turns, parts, strict=True)]


def facts(rows: QuerySet[SessionTurn], most: int = 5000) -> list[TurnFacts]:
    """Of the newest turns."""
    return [TurnFacts.model_validate(value) for value in rows.order_by("-pk").values_list("facts", flat=True)[:most]]


def mean_reward(turns: Sequence[ShownTurn]) -> float | None:
    found = [turn.reward for turn in turns if turn.reward is not None]
    return sum(found) / len(found) if found else None
