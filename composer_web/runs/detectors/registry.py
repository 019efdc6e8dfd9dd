"""Turns the conditions of runs into detectors of the product (`core.detectors`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.urls import reverse
from django.utils import timezone

from composer_web.core.detectors import Detector, Insight, Severity, register, shared
from composer_web.runs.detectors import efficiency, signal
from composer_web.runs.detectors.series import RunSeries, live_series
from composer_web.runs.models import Run

FAILED_FOR = timedelta(days=1)
"""A run that failed longer ago no longer needs attention."""
MAX_FAILED = 10


@dataclass(frozen=True)
class Condition:
    """A condition of one run's metrics. `page`: the tab of the run that shows the cause."""

    name: str
    title: str
    severity: Severity
    metrics: tuple[str, ...]
    holds: Callable[[RunSeries], str | None]
    remedy: str
    page: str = "runs:charts"


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "zero-advantage",
        "Zero-advantage groups",
        "high",
        ("groups/zero_signal",),
        signal.zero_advantage,
        "Exclude tasks that are always or never solved, raise the group size, or start from a suite of middle difficulty.",
        "rollouts:waffle",
    ),
    Condition(
        "entropy-collapse",
        "Entropy collapse",
        "high",
        ("policy/entropy",),
        signal.entropy_collapse,
        "Lower the learning rate, raise the sampling temperature, or continue from an earlier checkpoint.",
    ),
    Condition(
        "rising-mismatch",
        "Rising train–inference mismatch",
        "high",
        ("mismatch/k3_mean",),
        signal.rising_mismatch,
        "Compare the precision and kernels of engine and trainer; turn on router replay for a mixture of experts.",
    ),
    Condition(
        "stalled",
        "No progress",
        "high",
        ("time/step",),
        efficiency.stalled,
        "Look at the rollout workers and at the inference server.",
        "runs:system",
    ),
    Condition(
        "stale-engine",
        "Stale engine",
        "high",
        (),
        efficiency.stale_engine,
        "Look at the engine's log and at its connection to the weight store.",
        "runs:system",
    ),
    Condition(
        "idle-trainer",
        "Idle trainer",
        "medium",
        ("idle/trainer",),
        efficiency.idle_trainer,
        "Add inference or rollout workers, or allow more groups in flight.",
        "runs:system",
    ),
    Condition(
        "truncated",
        "Truncated rollouts",
        "medium",
        ("truncated",),
        signal.truncated,
        "Raise the limit that the stop reasons name, or shorten the tasks.",
    ),
    Condition(
        "saturated",
        "Saturated tasks",
        "medium",
        ("groups/solved_all",),
        signal.saturated,
        "Exclude tasks that are always solved, or train on a harder suite.",
        "rollouts:waffle",
    ),
)

METRICS = tuple(dict.fromkeys(name for condition in CONDITIONS for name in condition.metrics))
"""All that conditions read: loaded at once."""


def insights(condition: Condition) -> Iterator[Insight]:
    """Live RL runs for which the condition holds."""
    for series in shared("runs.detectors", partial(live_series, METRICS)):
        message = condition.holds(series)
        if message is not None:
            yield _insight(series.run, condition.title, message, condition.remedy, condition.page)


def failed_runs() -> Iterable[Insight]:
    """Runs that failed within a day and were neither resumed nor archived."""
    since = timezone.now() - FAILED_FOR
    rows = Run.objects.filter(state="failed", archived_at=None, finished_at__gte=since).order_by("-pk")
    for run in rows.only("pk", "name", "failure")[:MAX_FAILED]:
        remedy = "Fix the cause, then resume: the run continues from its last checkpoint."
        yield _insight(run, "Run failed", run.failure[:300] or "no cause was recorded", remedy, "runs:logs")


def _insight(run: Run, title: str, message: str, remedy: str, page: str) -> Insight:
    return Insight(f"run:{run.pk}", title, message, remedy, reverse(page, args=[run.pk]), run.name)


def _meaning(condition: Condition) -> str:
    return " ".join((condition.holds.__doc__ or "").split())


def install() -> None:
    """Register all detectors of runs. Called once, by `AppConfig.ready()`."""
    for one in CONDITIONS:
        register(Detector(one.name, one.title, _meaning(one), one.severity, partial(insights, one)))
    meaning = "A run ended with an error within the last day and nobody has resumed or archived it."
    register(Detector("run-failed", "Run failed", meaning, "high", failed_runs))
