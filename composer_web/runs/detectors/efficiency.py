"""Conditions of time and hardware: an idle trainer, a run without progress, an engine with old weights."""

from __future__ import annotations

from django.utils import timezone

from composer_web.runs.detectors.series import RECENT, RunSeries, mean
from composer_web.runs.engine_lag import allowed_lag

IDLE = 0.6
STALL_FACTOR = 10.0
STALL_SECONDS = 600.0


def idle_trainer(series: RunSeries) -> str | None:
    """The trainer waits for rollouts most of the time: inference or the sandboxes are the bottleneck."""
    recent = series.recent("idle/trainer")
    if not recent or mean(recent) < IDLE:
        return None
    return f"the trainer waited for rollouts for {mean(recent):.0%} of the last {len(recent)} steps"


def stalled(series: RunSeries) -> str | None:
    """No step has ended for much longer than a step takes."""
    run = series.run
    steps = series.last("time/step", RECENT)
    if run.state != "running" or run.wanted_at is None or not steps:
        return None
    waited = (timezone.now() - run.wanted_at).total_seconds()
    if waited < max(STALL_SECONDS, STALL_FACTOR * mean(steps)):
        return None
    return f"the trainer has waited {waited / 60:.0f} min for step {run.wanted_step}; a step takes {mean(steps):.0f} s"


def stale_engine(series: RunSeries) -> str | None:
    """The engine serves older weights than the run allows, so new rollouts are born stale."""
    run = series.run
    served = run.latest.get("sync/version")
    behind = 0 if served is None else run.policy_version - served
    if served is None or behind <= 1 or behind <= allowed_lag(run):  # the second reads the configuration: seldom
        return None
    return f"the engine serves version {served:.0f}; {run.policy_version} is published"
