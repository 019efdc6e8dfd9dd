"""What the detectors see in one run: shown on its page, by the API and the command line; learning also as events of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from composer_web.core.detectors import Found, about_run
from composer_web.runs.detectors import registry, remedies
from composer_web.runs.detectors.series import run_series
from composer_web.runs.models import Metric, Run, RunEvent
from composer_web.runs.services import add_event

KIND = "insight"
"""Kind of the event."""
LEVELS: Mapping[str, Literal["info", "warning", "error"]] = {"high": "error", "medium": "warning", "low": "info"}
"""Severity of a detector → level of its event."""
of_run = about_run


def tones(found: Iterable[Found]) -> dict[str, str]:
    """Metric → tone of its figure, for each condition that holds."""
    figures = {condition.name: condition.figure or condition.metrics[0] for condition in registry.CONDITIONS}
    tone = {"high": "bad", "medium": "warn", "low": "warn"}
    return {figures[one.detector.name]: tone[one.detector.severity] for one in found if one.detector.name in figures}


def watch(*, run: Run) -> None:
    """Tell what is new about a run's learning as events."""
    found = registry.learned(run)
    if not found:
        return
    told = set(RunEvent.objects.filter(run=run, kind=KIND).values_list("data__key", flat=True))
    for condition, insight in found:
        if condition.name not in told:
            message = f"{insight.message}. {insight.remedy}"
            add_event(
                run=run, kind=KIND, level=LEVELS[condition.severity], message=message, data={"key": condition.name}
            )


def nothing_trained(run: Run) -> str:
    """Why a run that did all its steps changed no weight, with a remedy. Empty if it did."""
    norms = Metric.objects.filter(run=run, key__name="optim/grad_norm", step__gt=0)
    if run.kind != "rl" or not norms.exists() or norms.filter(value__gt=0).exists():
        return ""
    (series,) = run_series(run, remedies.SIGNAL)
    none_passed = series.recent_mean("groups/solved_none") == 1
    why = "no rollout passed" if none_passed else "all rollouts of a group had equal rewards"
    return f"nothing was trained: in every step {why}. {remedies.signal(series)}"
