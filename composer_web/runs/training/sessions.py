"""Training batches of recorded sessions: chosen once, recorded before training, monitored by guards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from composer_web.core.artifacts import ArtifactError
from composer_web.core.database import survives_restart
from composer_web.gateway.configuration import settings_of
from composer_web.gateway.models import Session, SessionTurn, SessionUse
from composer_web.gateway.serving.recording import turns_of
from composer_web.gateway.sessions import selectors
from composer_web.rollouts.dispatch import batches
from composer_web.runs.training.trainer_bridge import DatabaseSink, RunControl
from trainer.config import RLConfig
from trainer.errors import BatchTimeout, StageError
from trainer.realtime.batch import Freshness, SessionRecord, build
from trainer.realtime.guards import Rates, broken
from trainer.realtime.signals import Signal
from trainer.types import TrainGroup

MAX_LOOKED_AT = 20
"""Sessions read per session that a step needs, at most."""


class GuardBroken(StageError):
    """The rates of the version to be trained moved beyond the allowed bounds."""


class SessionGroupSource:
    """See trainer.stages.base.GroupSource. The sessions of a step are those of the run's starting version."""

    def __init__(self, control: RunControl, sink: DatabaseSink) -> None:
        self.control, self.sink = control, sink
        self.run = control.run
        stage = self.run.configuration.stage
        assert isinstance(stage, RLConfig)
        self.stage, self.config = stage, stage.sessions
        self._flow: dict[str, float] = {}
        self._warned = False

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        """Raises BatchTimeout, Interrupted, GuardBroken, StageError (a session of a recorded step was deleted)."""
        self._watch()
        survives_restart(batches.want)(run=self.run, held=self.control.held, step=step)
        uses = self.control.wait_for(
            lambda: survives_restart(self._assign)(step) or None, timeout=timeout, what=f"the sessions of step {step}"
        )
        if uses is None:
            raise BatchTimeout(
                f"step {step}: fewer than {self.stage.groups_per_step} sessions of {self.run.policy_in.name}@"
                f"{self.run.policy_in_version} on {self.config.channel} can be trained on within {timeout:g} s; promote "
                "that version, turn recording on, or lower groups_per_step"
            )
        survives_restart(batches.taken)(run=self.run, step=step)
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
            max_off_policy_steps=self.stage.max_off_policy_steps,
            temperature=self.stage.sampling.temperature,
            max_redacted_share=self.config.max_redacted_share,
        )

    @transaction.atomic
    def _assign(self, step: int) -> list[SessionUse]:
        """Sessions of the step, recorded now if necessary. Empty while there are too few."""
        recorded = list(SessionUse.objects.filter(run=self.run, step=step).select_related("session"))
        if recorded:
            if gone := sum(use.session is None for use in recorded):
                raise StageError(
                    f"{gone} sessions of step {step} were erased since it was recorded; go on from a later checkpoint"
                )
            return recorded
        chosen: list[SessionUse] = []
        reward = settings_of(self.config.channel).reward
        for session in self._candidates()[: MAX_LOOKED_AT * self.stage.groups_per_step]:
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
                oldest_version__gte=self.run.policy_in_version - self.stage.max_off_policy_steps,
                last_at__lte=settled,
            )
            .exclude(uses__run=self.run)
            .order_by("-version", "pk")
        )

    def _record(self, use: SessionUse) -> SessionRecord:
        """The session as it was when chosen, without later turns and signals. Raises StageError."""
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
        """Compare the starting version's rates with those of the version served before it."""
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
