"""Views of runs: table, live run page and its parts, comparison. (The form: form_views.py.)"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from django.db import transaction
from django.http import Http404, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.numbers import row_ids
from composer_web.runs import actions, labels, selectors
from composer_web.runs.charts import annotations as run_annotations
from composer_web.runs.charts import axes, comparing, panels
from composer_web.runs.http import facets
from composer_web.runs.http.filters import RunFilter
from composer_web.runs.http.tables import RunTable
from composer_web.runs.launch.schema_form import setting_help
from composer_web.runs.live import parts
from composer_web.runs.live.charting import charts, further, places
from composer_web.runs.models import Run
from composer_web.ui import saved_views
from composer_web.ui.bulk import act_on_each
from composer_web.ui.filters import strict
from composer_web.ui.pages import PageRequest, act, page, rows, show
from composer_web.ui.tables import chosen_columns

PER_PAGE = 25
MAX_KEYS = 60
MAX_OTHERS = 20
"""Maximum number of runs offered at a time on the comparison page. Typing narrows them."""
MAX_BUCKETS = 1000
OVERVIEW_PANELS = 4
"""Number of charts on a run's overview and first on a comparison. The Charts tab, and a fold, have the others."""


@require_safe
@page()
def run_list(request: PageRequest) -> HttpResponse:
    """Run list. Filters, order and columns (`cols=`) are in the URL; a saved view stores such a URL."""
    found = strict(RunFilter, request.GET, queryset=selectors.runs())
    table = RunTable(found.qs, chosen=chosen_columns(request))
    table.put_away = found.put_away_alone
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return rows(request, table)
    context = {
        "table": table,
        "filter": found,
        "live": "runs",
        "most": comparing.MAX_GROUPED,
        "bulk_actions": actions.ACTIONS,
        "previews": True,
        "columns": table.offered(),
        "metrics": table.recorded,
        "saved": saved_views.offered(request, request.user, "runs"),
    }
    return show(request, "runs/list.html", context)


@require_safe
@page()
def run_facets(request: PageRequest) -> HttpResponse:
    return show(request, "partials/facets.html", {"facets": facets.facets(request)})


@require_POST
@page("operator")
def run_labels(request: PageRequest, pk: int) -> HttpResponse:
    """Tags and notes of one run."""
    run = selectors.get_run(pk)

    def change() -> None:
        with transaction.atomic():
            labels.set_tags(run=run, tags=labels.parse_tags(request.POST.get("tags", "")), actor=request.user)
            labels.set_notes(run=run, notes=request.POST.get("notes", ""), actor=request.user)

    return act(request, change, done="Notes and tags saved.", to="runs:detail", pk=pk)


@require_POST
@page("operator")
def run_bulk_tags(request: PageRequest) -> HttpResponse:
    """Add tags to every run that was ticked, or take them away."""
    asked = row_ids(request.POST.getlist("run"))
    runs = list(selectors.runs().filter(pk__in=asked))
    add = request.POST.get("action") != "untag"
    text = request.POST.get("tags", "")
    words = f"{'Added to' if add else 'Taken from'} {len(runs)} run{'' if len(runs) == 1 else 's'}."
    return act(
        request,
        lambda: labels.retag(runs=runs, text=text, add=add, actor=request.user),
        done=words,
        to="runs:list",
    )


@require_safe
@page()
def run_detail(request: PageRequest, pk: int) -> HttpResponse:
    run = selectors.get_run(pk)
    context: dict[str, Any] = {
        "run": run,
        "tab": "overview",
        "panels": panels.headline(run.kind, run.latest)[:OVERVIEW_PANELS],
        **charts([run]),
    }
    for name, part in parts.PARTS.items():
        if name not in parts.LATER:
            context |= part(run)
    return show(request, "runs/detail.html", context)


@require_safe
@page()
def run_further(request: PageRequest) -> HttpResponse:
    """The panels behind “more metrics”, asked for when somebody opens them: a run may have hundreds."""
    runs = _asked(request)
    return show(request, "runs/_further.html", {"further": further(runs), **places(runs)})


def _asked(request: PageRequest) -> list[Run]:
    """`?run=3&run=5`, in that order; what there is not is left out."""
    asked = row_ids(request.GET.getlist("run"))[: comparing.MAX_GROUPED]
    found = selectors.whole_runs().in_bulk(asked)
    return [found[pk] for pk in asked if pk in found]


@require_safe
@page()
def run_compare(request: PageRequest) -> HttpResponse:
    """Runs (`?run=3&run=5`) over each other, in the frame of the one that the page was opened from (`?from=3`). `?group=` a
    setting draws the mean and the band of the runs with each of its values; more than six runs are always grouped."""
    runs = _asked(request)
    choices = comparing.group_choices(runs)
    group = request.GET.get("group", "")
    if group not in choices:
        group = comparing.ALL if len(runs) > comparing.MAX_RUNS else ""
    for run in runs:
        rest = request.GET.copy()
        rest.setlist("run", [str(other.pk) for other in runs if other is not run])
        run.without = f"?{rest.urlencode()}"  # type: ignore[attr-defined]
    kinds = list(dict.fromkeys(run.kind for run in runs))
    overlaid = panels.overlaid(kinds)
    everything = request.GET.get("settings") == "all"
    context = {
        "runs": runs,
        "opened_from": next((run for run in runs if str(run.pk) == request.GET.get("from")), None),
        "wanted": request.GET.get("q", ""),
        "others": _others(request, runs),
        "most": comparing.MAX_GROUPED,
        "group": group,
        "group_choices": choices if len(runs) > 1 else [],
        "outcomes": comparing.outcomes(runs),
        "differences": [
            replace(row, meaning=setting_help(row.label))
            for row in comparing.differences((run.config for run in runs), everything=everything)
        ],
        "everything": everything,
        "panels": overlaid[:OVERVIEW_PANELS],
        "folded": overlaid[OVERVIEW_PANELS:],
        **charts(runs, comparing.groups(runs, group) if group else ()),
    }
    return show(request, "runs/compare.html", context)


@require_safe
@page()
def run_others(request: PageRequest) -> HttpResponse:
    """Runs that could be compared too, as somebody types (`q=`)."""
    return show(request, "runs/_others.html", {"others": _others(request, _asked(request))})


def _others(request: PageRequest, runs: list[Run]) -> list[Run]:
    """Newest first, each with the `address` of the comparison that has it too."""
    found = RunFilter({"q": request.GET.get("q", "")}, queryset=selectors.runs())
    others = list(found.qs.exclude(pk__in=[run.pk for run in runs])[:MAX_OTHERS])
    for other in others:
        whole = request.GET.copy()
        whole.pop("q", None)
        whole.setlist("run", [str(run.pk) for run in [*runs, other]])
        other.address = f"?{whole.urlencode()}"
    return others


@require_safe
@page()
def run_part(request: PageRequest, pk: int, part: str) -> HttpResponse:
    """One live part of the run page."""
    if part not in parts.PARTS:
        raise Http404(f"a run page has no part {part}")
    run = selectors.get_run(pk)
    place = {"tab": request.GET.get("tab", ""), "deep": "deep" in request.GET}
    return show(request, f"runs/_{part}.html", {"run": run, **place, **parts.PARTS[part](run)})


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
    runs = [selectors.get_run(pk) for pk in row_ids(request.POST.getlist("run"))]
    steps = [(run.name, partial(chosen.service, run=run, actor=request.user)) for run in runs]
    return act_on_each(request, steps, said=lambda names: f"{', '.join(names)}: {chosen.done}", to="runs:list")


@require_safe
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
    found = axes.buckets(run, keys, axis=axis, count=count, first=limits["from"], last=limits["to"])
    series = {
        key: [{"x": b.x, "step": b.last, "min": b.low, "max": b.high, "last": b.value} for b in rows]
        for key, rows in found.items()
    }
    return JsonResponse({"series": series})


@require_safe
@page()
def run_marks(request: PageRequest, pk: int) -> HttpResponse:
    """What happened in a run, where it lies on an axis, for js/chart.js: {marks: [{x, step, kind, text}]}."""
    run = selectors.get_run(pk)
    try:
        axis = axes.Axis(request.GET.get("axis", "step"))
    except ValueError:
        message = f"axis is one of {', '.join(axes.Axis)}"
        return JsonResponse({"error": {"code": "invalid", "message": message}}, status=422)
    found = run_annotations.of_run(run, axis)
    return JsonResponse({"marks": [asdict(mark) for mark in found.marks], "left_out": found.left_out})


def _number(text: str) -> float:
    """Raises ValueError, also for what is no place on an axis."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
