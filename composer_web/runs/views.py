"""Pages of runs: table, live run page and its parts, comparison. (The form: form_views.py.)"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST
from django_tables2 import RequestConfig

from composer_web.evals import selectors as evals
from composer_web.ops.errors import UserError
from composer_web.ops.pages import PageRequest, act, page, show
from composer_web.policies import selectors as policies
from composer_web.rollouts import selectors as rollouts
from composer_web.runs import actions, axes, comparing, metrics, panels, selectors, sparks, status
from composer_web.runs.filters import RunFilter
from composer_web.runs.models import Run
from composer_web.runs.tables import RunTable

PER_PAGE = 25
MAX_KEYS = 12
MAX_BUCKETS = 1000
FORKS = 12
"""Checkpoints that the page offers to start from; the policy's page has them all."""


@require_GET
@page()
def run_list(request: PageRequest) -> HttpResponse:
    found = RunFilter(request.GET, queryset=selectors.runs())
    table = RunTable(found.qs)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    table.sparks = sparks.recent([row.record.pk for row in table.paginated_rows], ["reward/mean", "loss/train"])
    template = "partials/rows.html" if request.headers.get("HX-Request") else "runs/list.html"
    context = {
        "table": table,
        "filter": found,
        "live": "runs",
        "most": comparing.MAX_RUNS,
        "bulk_actions": [action for action in actions.ACTIONS if action.name != "start"],
    }
    return show(request, template, context)


@require_GET
@page()
def run_detail(request: PageRequest, pk: int) -> HttpResponse:
    run = selectors.get_run(pk)
    context: dict[str, Any] = {
        "run": run,
        "panels": panels.headline(run.kind),
        "further": panels.further([run.kind], metrics.names(run)),
        **_charts([run]),
    }
    for part in PARTS.values():
        context |= part(run)
    context["children"] = selectors.runs().filter(parent=run)
    return show(request, "runs/detail.html", context)


def _charts(runs: Sequence[Run]) -> dict[str, Any]:
    """What partials/chart.html needs to know of the runs that its panels draw."""
    places = [{"name": run.name, "url": reverse("runs:metrics", args=[run.pk])} for run in runs]
    return {
        "chart_runs": json.dumps(places),
        "chart_topics": " ".join(f"run:{run.pk}" for run in runs),
        "overlay": len(runs) > 1,
    }


@require_GET
@page()
def run_compare(request: PageRequest) -> HttpResponse:
    """Up to six runs (`?run=3&run=5`) over each other."""
    asked = list(dict.fromkeys(int(pk) for pk in request.GET.getlist("run") if pk.isdigit() and len(pk) < 18))
    found = selectors.runs().in_bulk(asked[: comparing.MAX_RUNS])
    runs = [found[pk] for pk in asked if pk in found]
    for run in runs:
        rest = request.GET.copy()
        rest.setlist("run", [str(other.pk) for other in runs if other is not run])
        run.without = f"?{rest.urlencode()}"  # type: ignore[attr-defined]
    kinds = list(dict.fromkeys(run.kind for run in runs))
    recorded = {name for run in runs for name in metrics.names(run)}
    context = {
        "runs": runs,
        "others": selectors.runs().exclude(pk__in=found)[:50],
        "most": comparing.MAX_RUNS,
        "outcomes": comparing.outcomes(runs),
        "differences": comparing.differences(run.config for run in runs),
        "panels": panels.overlaid(kinds),
        "further": panels.further(kinds, recorded),
        **_charts(runs),
    }
    return show(request, "runs/compare.html", context)


@require_GET
@page()
def run_part(request: PageRequest, pk: int, part: str) -> HttpResponse:
    """One live part of the run page."""
    if part not in PARTS:
        raise Http404(f"a run page has no part {part}")
    run = selectors.get_run(pk)
    return show(request, f"runs/_{part}.html", {"run": run, **PARTS[part](run)})


@require_POST
@page("operator")
def run_action(request: PageRequest, pk: int, action: str) -> HttpResponse:
    chosen = actions.BY_NAME.get(action)
    if chosen is None:
        raise Http404(f"a run has no action {action}")
    run = selectors.get_run(pk)
    return act(request, lambda: chosen.service(run=run, actor=request.user), done=chosen.done, to="runs:detail", pk=pk)


@require_POST
@page("operator")
def run_bulk(request: PageRequest, action: str) -> HttpResponse:
    """One action on every run that was ticked; each that refuses says why, the others go on."""
    chosen = actions.BY_NAME.get(action)
    if chosen is None:
        raise Http404(f"a run has no action {action}")
    done = []
    for pk in request.POST.getlist("run"):
        run = selectors.get_run(int(pk)) if pk.isdigit() else None
        if run is None:
            continue
        try:
            chosen.service(run=run, actor=request.user)
            done.append(run.name)
        except UserError as error:
            messages.error(request, f"{run.name}: {error}")
    if done:
        messages.success(request, f"{', '.join(done)}: {chosen.done}")
    return redirect("runs:list")


@require_GET
@page()
def run_metrics(request: PageRequest, pk: int) -> HttpResponse:
    """Buckets of some metrics for js/chart.js: {series: {key: [{x, step, min, max, last}]}}."""
    run = selectors.get_run(pk)
    keys = [key for key in request.GET.get("keys", "").split(",") if key][:MAX_KEYS]
    try:
        axis = axes.Axis(request.GET.get("axis", "step"))
        limits = {name: _number(request.GET[name]) if name in request.GET else None for name in ("from", "to")}
        count = min(MAX_BUCKETS, max(1, int(request.GET.get("buckets", 240))))
    except ValueError:
        message = f"axis is one of {', '.join(axes.Axis)}; from, to and buckets are numbers"
        return JsonResponse({"error": {"code": "invalid", "message": message}}, status=422)
    series = {
        key: [
            {"x": b.x, "step": b.last, "min": b.low, "max": b.high, "last": b.value}
            for b in axes.buckets(run, key, axis=axis, count=count, first=limits["from"], last=limits["to"])
        ]
        for key in keys
    }
    return JsonResponse({"series": series})


def _number(text: str) -> float:
    """Raises ValueError, also for what is no place on an axis."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _head(run: Run) -> dict[str, Any]:
    checkpoints = policies.on_disk(run.policy_out)[:FORKS] if run.policy_out else []
    return {"actions": actions.possible(run), "checkpoints": checkpoints}


def _status(run: Run) -> dict[str, Any]:
    step = selectors.step_seconds(run) if run.state in ("running", "pausing") else None
    eta = step * max(0, run.steps_total - run.step) if step is not None else selectors.eta_seconds(run)
    return {"figures": status.figures(run), "eta": eta, "step_seconds": step}


def _events(run: Run) -> dict[str, Any]:
    return {"events": selectors.events(run)[:40]}


def _groups(run: Run) -> dict[str, Any]:
    return {"groups": rollouts.groups().filter(run=run).prefetch_related("rollouts").order_by("-pk")[:12]}


def _evals(run: Run) -> dict[str, Any]:
    return {"evaluations": evals.of_run(run)}


PARTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "head": _head,
    "status": _status,
    "events": _events,
    "groups": _groups,
    "evals": _evals,
}
