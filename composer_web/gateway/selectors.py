"""Read queries of recorded sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from composer_web.core.errors import NotFound
from composer_web.gateway.configuration import Settings, settings_of
from composer_web.gateway.models import Session, SessionTurn, SignalRow
from composer_web.gateway.recording import turns_of
from trainer.realtime.guards import InUse, Rates
from trainer.realtime.reading import TurnFacts
from trainer.realtime.sessions import RecordedTurn
from trainer.realtime.signals import Signal, SignalReward, total
from trainer.types import RewardPart

GOOD, BAD = ("accept", "edit_kept"), ("reject", "dissatisfied")
"""Positive and negative kinds of signals. Latency is neither."""


def sessions() -> QuerySet[Session]:
    """Sessions for lists, with policy, owner, and the number of positive and negative signals."""
    rows = Session.objects.select_related("policy", "owner").annotate(
        good=Count("signals", distinct=True, filter=Q(signals__kind__in=GOOD)),
        bad=Count("signals", distinct=True, filter=Q(signals__kind__in=BAD)),
    )
    return rows.order_by("-pk")  # grouped queries have no order of their own


def whole(keys: Sequence[int] | None = None) -> Iterator[Session]:
    """All sessions, or those of `keys`, with the data for their files, newest first, in batches."""
    rows = sessions() if keys is None else sessions().filter(pk__in=keys)
    return rows.prefetch_related("recorded", "signals").iterator(chunk_size=50)


def get(pk: int) -> Session:
    """Raises NotFound."""
    found = sessions().filter(pk=pk).first()
    if found is None:
        raise NotFound("recorded session", pk)
    return found


def signals_of(session: Session) -> list[Signal]:
    """Signals in order of arrival."""
    return [Signal(kind=row.kind, turn=row.turn, value=row.value) for row in session.signals.all()]  # type: ignore[arg-type]


@dataclass(frozen=True)
class ShownTurn:
    """A turn as pages and the API show it. `reward` is None without feedback."""

    turn: RecordedTurn
    parts: tuple[RewardPart, ...]

    @property
    def reward(self) -> float | None:
        return total(self.parts) if self.parts else None

    @property
    def versions(self) -> list[int]:
        return sorted(set(self.turn.versions))


def shown(session: Session, configured: Settings | None = None) -> list[ShownTurn]:
    """Turns with reward components under the current configuration. Raises ArtifactError."""
    turns = turns_of(session)
    parts = (configured or settings_of(session.channel)).reward.parts(
        [turn.facts for turn in turns], signals_of(session)
    )
    return [ShownTurn(turn, tuple(of_turn)) for turn, of_turn in zip(turns, parts, strict=True)]


def facts(rows: QuerySet[SessionTurn], most: int = 5000) -> list[TurnFacts]:
    """Facts of the newest turns."""
    return [TurnFacts.model_validate(value) for value in rows.order_by("-pk").values_list("facts", flat=True)[:most]]


def in_use(rows: QuerySet[SessionTurn], reward: SignalReward, most: int = 5000) -> InUse:
    """What the newest turns did, with the users' feedback on them and on their sessions."""
    turns = list(rows.order_by("-pk").values_list("session_id", "index", "facts", "first_token_ms")[:most])
    said: dict[tuple[int, int | None], list[Signal]] = defaultdict(list)
    told = SignalRow.objects.filter(session_id__in={pk for pk, *_ in turns}).order_by("pk")
    for pk, kind, turn, value in told.values_list("session_id", "kind", "turn", "value"):
        said[pk, turn].append(Signal(kind=kind, turn=turn, value=value))  # type: ignore[arg-type]
    read = [TurnFacts.model_validate(facts) for _, _, facts, _ in turns]
    heard: dict[int, set[str]] = defaultdict(set)
    rewards = []
    for (pk, index, _, _), facts in zip(turns, read, strict=True):
        about = [*said.get((pk, None), ()), *said.get((pk, index), ())]
        heard[pk].update(signal.kind for signal in about)
        if parts := reward.of_turn(facts, about):
            rewards.append(total(parts))
    return InUse(
        rates=Rates.of(read),
        rewards=rewards,
        first_token_ms=[waited for *_, waited in turns],
        sessions=len(heard),
        good=sum(not kinds.isdisjoint(GOOD) for kinds in heard.values()),
        bad=sum(not kinds.isdisjoint(BAD) for kinds in heard.values()),
    )


def mean_reward(turns: Sequence[ShownTurn]) -> float | None:
    found = [turn.reward for turn in turns if turn.reward is not None]
    return sum(found) / len(found) if found else None
