"""Content of the home page: active runs with their curves and what came of them, what needs attention, failures, scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.urls import reverse

from composer_web.core import detectors
from composer_web.core.queue import overview, usage
from composer_web.evals.models import Evaluation
from composer_web.evals.results.leaderboard import scored
from composer_web.policies import selectors as policies
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.models import Rollout
from composer_web.runs import selectors as runs
from composer_web.runs.charts.curves import Curves, curves
from composer_web.runs.live.status import metric
from composer_web.runs.models import RUN_LIVE, Run
from composer_web.system.sample import sample_state
from composer_web.tasks import selectors as tasks
from composer_web.ui.pages import Figure
from composer_web.ui.templatetags import ui

MAX_ACTIVE = 4
"""Active runs with curves. The runs page has all."""
RECENT = 6
FAILURES = 8
SCORES = 8


@dataclass(frozen=True)
class Headline:
    """What a run achieved on what it never trains on: first and newest value."""

    label: str
    before: str
    after: str
    change: str
    better: bool


@dataclass(frozen=True)
class RunCard:
    run: Run
    curves: Curves
    headline: Headline | None
    eta: float | None
    attention: list[detectors.Found]
    figures: list[Figure]

    @property
    def main_label(self) -> str:
        return "Reward" if self.run.kind == "rl" else "Training loss"

    @property
    def held_out_label(self) -> str:
        return "Held-out pass@1" if self.run.kind == "rl" else "Held-out loss"

    @property
    def held_out_unit(self) -> str:
        return "%" if self.run.kind == "rl" else ""

    @property
    def main_last(self) -> str:
        """Newest value of the main curve, as the run's tile shows it."""
        return ui.num(self.curves.main[-1][1])

    @property
    def held_out_last(self) -> str:
        last = self.curves.held_out[-1][1]
        return ui.percent(last) if self.held_out_unit else ui.num(last)


@dataclass(frozen=True)
class Score:
    """A policy version on one benchmark."""

    evaluation: Evaluation
    benchmark: str
    url: str
    score: float
    low: float | None
    high: float | None


def headline(run: Run, found: Curves) -> Headline | None:
    """None before the second measurement on held-out tasks or text."""
    if len(found.held_out) < 2:
        return None
    first, last = found.held_out[0][1], found.held_out[-1][1]
    if run.kind == "rl":
        points = 100 * (last - first)
        sign = "+" if points >= 0 else "−"
        change = f"{sign}{abs(points):.1f} points"
        return Headline("Held-out pass@1", f"{100 * first:.1f}", ui.percent(last), change, points >= 0)
    change = f"{'+' if last > first else '−'}{abs(last - first):.3f}"
    return Headline("Held-out loss", ui.num(first), ui.num(last), change, last <= first)


def cards(found: list[Run], attention: list[detectors.Found]) -> list[RunCard]:
    drawn = curves(found)
    return [
        RunCard(
            run=run,
            curves=drawn[run.pk],
            headline=headline(run, drawn[run.pk]),
            eta=runs.eta_seconds(run),
            attention=[one for one in attention if one.insight.about == f"run:{run.pk}"],
            figures=_figures(run),
        )
        for run in found
    ]


def _figures(run: Run) -> list[Figure]:
    """Throughput, staleness and hardware of a run."""
    latest = run.latest
    if run.kind != "rl":
        return [
            metric("Training", "speed/train_tokens", latest, "tok/s"),
            metric("Loss", "loss/train", latest, "nats/token"),
        ]
    return [
        metric("Generation", "speed/generate_tokens", latest, "tok/s"),
        metric("Training", "speed/train_tokens", latest, "tok/s"),
        metric("Staleness", "staleness/mean", latest, f"max {ui.num(latest.get('staleness/max'))}"),
        metric("Trainer idle", "idle/trainer", latest),
        metric("Engine idle", "idle/rollouts", latest),
        metric("KV cache", "cache/used", latest),
    ]


def scores() -> list[Score]:
    """The best policy versions on each benchmark release, newest release first."""
    return [
        Score(
            evaluation=one,
            benchmark=str(release),
            url=reverse("evals:release", args=[release.benchmark, release.number]),
            score=one.results["pass1"],
            low=one.results.get("pass1_low"),
            high=one.results.get("pass1_high"),
        )
        for release, one in scored(SCORES)[:SCORES]
    ]


def hardware() -> dict[str, Any]:
    """Living processes by kind, and what all hosts together use."""
    known = overview.workers()
    kinds: dict[str, int] = {}
    for worker in known:
        if worker.state == "alive":
            kinds[worker.kind] = kinds.get(worker.kind, 0) + 1
    return {"kinds": sorted(kinds.items()), "alive": sum(kinds.values()), "use": usage.total(usage.current().values())}


def failures() -> list[Rollout]:
    """Newest rollouts of runs that failed their hidden tests."""
    rows = rollouts.rollout_rows().filter(verdict="failed", group__run__isnull=False)
    return list(rows.order_by("-finished_at", "-pk")[:FAILURES])


def home() -> dict[str, Any]:
    """Everything on the page, for the project of the request."""
    attention = detectors.found()
    active = list(runs.runs().filter(state__in=RUN_LIVE).order_by("-pk")[:MAX_ACTIVE])
    recent = list(runs.runs().exclude(state__in=RUN_LIVE).filter(archived_at=None)[:RECENT])
    shown = cards([*active, *recent], attention)
    states = dict(Run.objects.filter(state__in=RUN_LIVE).values_list("state").annotate(count=Count("pk")).order_by())
    known, suites = policies.policies().exists(), tasks.any_suite()
    return {
        "attention": attention,
        "verdict": verdict(attention),
        "active": shown[: len(active)],
        "recent": shown[len(active) :],
        "active_count": sum(states.values()),
        "states": states,
        "failures": failures(),
        "scores": scores(),
        "hardware": hardware(),
        "steps": checklist(has_policy=known, has_suite=suites, has_run=bool(active or recent) or runs.runs().exists()),
        "sample": sample_state() if not (known and suites) else None,
        "topics": " ".join(["runs", "evals", "alerts", *(f"run:{run.pk}" for run in active)]),
    }


def verdict(attention: list[detectors.Found]) -> dict[str, str]:
    """One word on the whole, by the most severe insight."""
    worst = {one.detector.severity for one in attention}
    count = len(attention)
    things = f"{count} thing{'' if count == 1 else 's'} need{'s' if count == 1 else ''} attention"
    if "high" in worst:
        return {"tone": "bad", "icon": "circle-x", "text": things}
    if worst:
        return {"tone": "warn", "icon": "triangle-alert", "text": things}
    return {"tone": "good", "icon": "circle-check", "text": "All healthy"}


def checklist(*, has_policy: bool, has_suite: bool, has_run: bool) -> list[dict[str, Any]]:
    """The way from an empty installation to a trained policy; empty once it has been walked."""
    steps = [
        {
            "done": has_policy,
            "title": "Import a policy",
            "how": "A folder in Hugging Face layout, on the server:",
            "command": "opencomposer policies create NAME PATH",
            "url": reverse("policies:list"),
        },
        {
            "done": has_suite,
            "title": "Create suites of tasks",
            "how": "Add a repository and generate tasks, or import them.",
            "command": "",
            "url": reverse("repositories:new"),
        },
        {
            "done": has_run,
            "title": "Start a run",
            "how": "Choose a preset and start.",
            "command": "",
            "url": reverse("runs:new"),
        },
    ]
    return [] if all(step["done"] for step in steps) else steps
