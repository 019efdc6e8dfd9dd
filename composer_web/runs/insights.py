"""Insights of a run: what its metrics say about why it learns little, shown on its page and told once as an event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from django.db.models import Max, Q

from composer_web.runs.models import Metric, Run, RunEvent
from composer_web.runs.services import add_event
from trainer.config import RLConfig
from trainer.defaults.insights import METRICS, WINDOW, Insight, insights, untrained

KIND = "insight"
"""Kind of the event."""


def of_run(run: Run) -> list[Insight]:
    """Insights that hold now. Empty for other stages than RL."""
    stage = run.configuration.stage
    if not isinstance(stage, RLConfig):
        return []
    steps = _steps(run)
    nothing = _untrained(run, steps) if run.step >= run.steps_total else None
    return [nothing] if nothing else insights(steps, stage)


def watch(*, run: Run) -> None:
    """Tell insights that are new as events of the run."""
    found = of_run(run)
    if not found:
        return
    told = set(RunEvent.objects.filter(run=run, kind=KIND).values_list("data__key", flat=True))
    for insight in found:
        if insight.key not in told:
            message = f"{insight.message}; {insight.remedy}"
            add_event(run=run, kind=KIND, level=insight.level, message=message, data={"key": insight.key})


def nothing_trained(run: Run) -> str:
    """Why a run that did all its steps changed no weight, with a remedy. Empty if it did."""
    found = _untrained(run, _steps(run)) if isinstance(run.configuration.stage, RLConfig) else None
    return f"{found.message}; {found.remedy}" if found else ""


def _untrained(run: Run, steps: list[Mapping[str, float]]) -> Insight | None:
    if any(step.get("optim/grad_norm") for step in steps):
        return None
    norms = Metric.objects.filter(run=run, key__name="optim/grad_norm", step__gt=0)
    return untrained(steps, max_grad_norm=norms.aggregate(largest=Max("value"))["largest"])


def _steps(run: Run) -> list[Mapping[str, float]]:
    """Metrics of the first and the last steps, oldest first. One query."""
    ends = Q(step__gt=0, step__lte=WINDOW) | Q(step__gt=max(0, run.step - WINDOW))
    rows = Metric.objects.filter(ends, run=run, key__name__in=METRICS)
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for step, name, value in rows.values_list("step", "key__name", "value"):
        steps[step][name] = value
    return [steps[step] for step in sorted(steps)]
