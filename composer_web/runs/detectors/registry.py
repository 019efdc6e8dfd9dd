"""Turns the conditions of runs into detectors of the product (`core.detectors`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.urls import reverse
from django.utils import timezone

from composer_web.core.detectors import Detector, Insight, Severity, register, shared, sharing
from composer_web.runs.detectors import efficiency, remedies, signal
from composer_web.runs.detectors.series import LIVE, RunSeries, live_series, run_series
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
    remedy: str | Callable[[RunSeries], str]
    page: str = "runs:charts"
    learning: bool = False
    """About what the run learns: it still holds when the run has ended, and is told once as an event of the run."""
    figure: str = ""
    """The metric whose figure on the run's page takes the condition's tone; empty for the first of `metrics`."""


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "no-calls",
        "No tool calls",
        "high",
        ("calls/mean",),
        signal.no_calls,
        "Read a rollout: the chat template may not show the tools. Run SFT on demonstrations first.",
        "rollouts:of-run",
        learning=True,
    ),
    Condition(
        "zero-advantage",
        "Zero-advantage groups",
        "high",
        (*remedies.SIGNAL, "groups/solved_all"),
        signal.zero_advantage,
        remedies.signal,
        "rollouts:waffle",
        learning=True,
    ),
    Condition(
        "entropy-collapse",
        "Entropy collapse",
        "high",
        ("policy/entropy",),
        signal.entropy_collapse,
        "Lower optimizer.learning_rate, raise sampling.temperature or objective.kl_coefficient, look for gamed rewards, or "
        "continue from an earlier checkpoint.",
        learning=True,
    ),
    Condition(
        "rising-mismatch",
        "Rising train–inference mismatch",
        "high",
        ("mismatch/k3_mean",),
        signal.rising_mismatch,
        "Compare the precision and kernels of engine and trainer; turn on router replay for a mixture of experts.",
        learning=True,
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
        ("staleness/mean",),
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
        ("truncated", *remedies.LIMITS),
        signal.truncated,
        remedies.limits,
        learning=True,
    ),
    Condition(
        "saturated",
        "Saturated tasks",
        "medium",
        ("groups/solved_all",),
        signal.saturated,
        "The tasks are too easy by now: continue on harder ones (curriculum.max_pass_rate, drop_solved_all).",
        "rollouts:waffle",
        learning=True,
        figure="groups/zero_signal",  # groups that are all solved have no signal either
    ),
)

METRICS = tuple(dict.fromkeys(name for condition in CONDITIONS for name in condition.metrics))
"""All that conditions read: loaded at once."""


def insights(condition: Condition) -> Iterator[Insight]:
    """Live RL runs for which the condition holds."""
    for series in shared("runs.detectors", partial(live_series, METRICS)):
        yield from _held(condition, series)


def insights_of(condition: Condition, run: Run) -> Iterator[Insight]:
    """The run if the condition holds. One that ended is judged by what it learned only."""
    for series in shared(f"runs.detectors of {run.pk}", partial(run_series, run, METRICS)):
        if condition.learning or series.run.state in LIVE:
            yield from _held(condition, series)


def _held(condition: Condition, series: RunSeries) -> Iterator[Insight]:
    message = condition.holds(series)
    if message is not None:
        remedy = condition.remedy if isinstance(condition.remedy, str) else condition.remedy(series)
        yield _insight(series.run, condition.title, message, remedy, condition.page)


def learned(run: Run) -> list[tuple[Condition, Insight]]:
    """What holds of a run's learning."""
    with sharing():
        return [(one, insight) for one in CONDITIONS if one.learning for insight in insights_of(one, run)]


def failed_runs() -> Iterator[Insight]:
    """Runs that failed within a day and were neither resumed nor archived."""
    since = timezone.now() - FAILED_FOR
    rows = Run.objects.filter(state="failed", archived_at=None, finished_at__gte=since).order_by("-pk")
    for run in rows.only("pk", "name", "failure")[:MAX_FAILED]:
        yield _failure(run)


def failure_of(run: Run) -> Iterator[Insight]:
    if run.state == "failed" and run.archived_at is None:
        yield _failure(run)


def _failure(run: Run) -> Insight:
    remedy = "Fix the cause, then resume: the run continues from its last checkpoint."
    return _insight(run, "Run failed", run.failure[:300] or "no cause was recorded", remedy, "runs:logs")


def _insight(run: Run, title: str, message: str, remedy: str, page: str) -> Insight:
    return Insight(f"run:{run.pk}", title, message, remedy, reverse(page, args=[run.pk]), run.name)


def _meaning(condition: Condition) -> str:
    return " ".join((condition.holds.__doc__ or "").split())


def install() -> None:
    """Register all detectors of runs. Called once, by `AppConfig.ready()`."""
    for one in CONDITIONS:
        look, of_run = partial(insights, one), partial(insights_of, one)
        register(Detector(one.name, one.title, _meaning(one), one.severity, look, of_run))
    meaning = "A run ended with an error within the last day and nobody has resumed or archived it."
    register(Detector("run-failed", "Run failed", meaning, "high", failed_runs, failure_of))
