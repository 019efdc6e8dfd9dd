"""Recorded sessions as the batches of a run: chosen once, recorded before they are trained, watched by guards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from composer_web.gateway import selectors
from composer_web.gateway.configuration import settings_of
from composer_web.gateway.models import Session, SessionTurn, SessionUse
from composer_web.gateway.recording import turns_of
from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.database import survives_restart
from composer_web.runs.trainer_bridge import DatabaseSink, Interrupted, RunControl
from trainer.config import RLConfig
from trainer.realtime.batch import Freshness, SessionRecord, build
from trainer.realtime.guards import Rates, broken
from trainer.realtime.signals import Signal
from trainer.rollouts.types import TrainGroup
from trainer.stages.base import BatchTimeout, StageError

POLL_SECONDS = 1.0
MOST_LOOKED_AT = 20
"""Sessions that are read for each one that a step needs."""


class GuardBroken(StageError):
    """The rates of the version that is to be trained moved further than allowed."""


class SessionGroupSource:
    """See trainer.stages.base.GroupSource. A step's sessions are those of the version that the run started from."""

    def __init__(self, control: RunControl, sink: DatabaseSink) -> None:
        self.control, self.sink = control, sink
        self.run = control.run
        stage = self.run.configuration.stage
        assert isinstance(stage, RLConfig)
        self.stage, self.config = stage, stage.sessions
        self._flow: dict[str, float] = {}
        self._warned = False

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        """Raises BatchTimeout, Interrupted, GuardBroken, StageError (a session of a recorded step was erased)."""
        self._watch()
        end, asked = time.monotonic() + timeout, time.monotonic()
        while not (uses := survives_restart(self._assign)(step)):
            if time.monotonic() > end:
                raise BatchTimeout(
                    f"step {step}: fewer than {self.stage.groups_per_step} sessions of {self.run.policy_in.name}@"
                    f"{self.run.policy_in_version} on {self.config.channel} can be trained on within {timeout:g} s; promote "
                    "that version, turn recording on, or lower groups_per_step"
                )
            time.sleep(POLL_SECONDS)
            if time.monotonic() - asked > 1.0:
                asked = time.monotonic()
                if self.control.should_stop():
                    raise Interrupted(f"stopped while waiting for the sessions of step {step}")
        batch = build(
            [survives_restart(self._record)(use) for use in uses],
            settings_of(self.config.channel).reward,
            self._freshness,
            step=step,
        )
        if len(batch.groups) != len(uses):
            raise StageError(
                f"step {step} was recorded with {len(uses)} sessions and {len(batch.groups)} of them can still be trained on "
                f"({dict(batch.left_out)}): the reward was changed since; start a new run"
            )
        self._flow = batch.metrics
        return batch.groups

    def flow(self) -> Mapping[str, float]:
        return self._flow

    @property
    def _freshness(self) -> Freshness:
        return Freshness(
            start=self.run.policy_in_version,
            max_staleness=self.stage.max_staleness,
            temperature=self.stage.sampling.temperature,
            most_redacted=self.config.most_redacted,
        )

    @transaction.atomic
    def _assign(self, step: int) -> list[SessionUse]:
        """The sessions of the step, recorded now if they were not yet; none while there are too few."""
        recorded = list(SessionUse.objects.filter(run=self.run, step=step).select_related("session"))
        if recorded:
            if gone := sum(use.session is None for use in recorded):
                raise StageError(
                    f"{gone} sessions of step {step} were erased since it was recorded; go on from a later checkpoint"
                )
            return recorded
        chosen: list[SessionUse] = []
        reward = settings_of(self.config.channel).reward
        for session in self._candidates()[: MOST_LOOKED_AT * self.stage.groups_per_step]:
            signals = list(session.signals.order_by("-pk").values_list("pk", flat=True)[:1])
            use = SessionUse(
                run=self.run,
                step=step,
                place=len(chosen),
                session=session,
                turns=session.turns,
                signals=signals[0] if signals else 0,
            )
            if build([self._record(use)], reward, self._freshness, step=step).groups:
                chosen.append(use)
            if len(chosen) == self.stage.groups_per_step:
                self.control.fence()
                SessionUse.objects.bulk_create(chosen)
                return chosen
        return []

    def _candidates(self) -> QuerySet[Session]:
        settled = timezone.now() - timedelta(minutes=self.config.settle_minutes)
        return (
            Session.objects.filter(
                channel=self.config.channel,
                policy=self.run.policy_in,
                version__lte=self.run.policy_in_version,
                oldest_version__gte=self.run.policy_in_version - self.stage.max_staleness,
                last_at__lte=settled,
            )
            .exclude(uses__run=self.run)
            .order_by("-version", "pk")
        )

    def _record(self, use: SessionUse) -> SessionRecord:
        """As it was when it was chosen: later turns and signals do not count. Raises StageError."""
        session = use.session
        assert session is not None
        rows = session.signals.filter(pk__lte=use.signals).order_by("pk")
        signals = [
            Signal(kind=row.kind, turn=row.turn, value=row.value)  # type: ignore[arg-type]
            for row in rows
            if row.turn is None or row.turn < use.turns
        ]
        try:
            turns = turns_of(session)[: use.turns]
        except ArtifactError as error:
            raise StageError(f"session {session.pk} cannot be read: {error}") from error
        number = (use.step - 1) * self.stage.groups_per_step + use.place
        return SessionRecord(str(session.pk), number, tuple(turns), tuple(signals))

    def _watch(self) -> None:
        """Compare what the starting version does with what was served before it."""
        ours = Q(policy=self.run.policy_in, version=self.run.policy_in_version)
        turns = SessionTurn.objects.filter(session__channel=self.config.channel)
        now, before = Rates.of(selectors.facts(turns.filter(ours))), Rates.of(selectors.facts(turns.exclude(ours)))
        if not (found := broken(self.config, before, now)):
            return
        text = "; ".join(found)
        if self.config.guard == "stop":
            raise GuardBroken(
                f"{text}. The policy may be gaming its reward: read its sessions, change the reward, and roll back"
            )
        if not self._warned:
            self._warned = True
            self.sink.event("error", f"guard: {text}")
