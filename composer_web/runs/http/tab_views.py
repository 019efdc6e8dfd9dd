"""The tabs of a run below its overview: charts, evaluations, configuration, logs, system; and the run switcher."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from composer_web.core.numbers import row_ids
from composer_web.runs import selectors
from composer_web.runs.charts import panels
from composer_web.runs.live import parts
from composer_web.runs.live.charting import charts
from composer_web.runs.models import Run, RunEvent
from composer_web.runs.templatetags.runframe import tab_page
from composer_web.ui.pages import PageRequest, page, show

PER_PAGE = 200
LEVELS = ("info", "warning", "error")
SWITCHES = 12
"""Number of other runs that the switcher offers. The command palette finds the rest."""


def _tab(run: Run, tab: str, *shown: str) -> dict[str, Any]:
    """Context of a tab that shows these live parts."""
    context: dict[str, Any] = {"run": run, "tab": tab}
    for name in shown:
        if name not in parts.LATER:
            context |= parts.PARTS[name](run)
    return context


@require_safe
@page()
def run_charts(request: PageRequest, pk: int) -> HttpResponse:
    run = selectors.get_run(pk)
    shown = {"panels": panels.headline(run.kind, run.latest), **charts([run])}
    return show(request, "runs/charts.html", {**_tab(run, "charts"), **shown})


@require_safe
@page()
def run_evals(request: PageRequest, pk: int) -> HttpResponse:
    return show(request, "runs/evals.html", _tab(selectors.get_run(pk), "evals", "evals"))


@require_safe
@page()
def run_config(request: PageRequest, pk: int) -> HttpResponse:
    return show(request, "runs/config.html", _tab(selectors.get_run(pk), "config"))


@require_safe
@page()
def run_system(request: PageRequest, pk: int) -> HttpResponse:
    return show(request, "runs/system.html", _tab(selectors.get_run(pk), "system", "timing"))


@require_safe
@page()
def run_logs(request: PageRequest, pk: int) -> HttpResponse:
    """Events of the run, newest first, narrowed by text (`q=`), `level=` and `kind=`."""
    run = selectors.get_run(pk)
    asked = {name: request.GET.get(name, "")[:100] for name in ("q", "level", "kind")}
    found = Paginator(_events(run, **asked), PER_PAGE).get_page(request.GET.get("page"))
    kinds = sorted(set(run.events.order_by().values_list("kind", flat=True)))
    context = {**_tab(run, "logs"), "found": found, "kinds": kinds, "levels": LEVELS, **asked}
    return show(request, "runs/_log.html" if request.headers.get("HX-Request") else "runs/logs.html", context)


def _events(run: Run, *, q: str, level: str, kind: str) -> QuerySet[RunEvent]:
    rows = selectors.events(run)
    if q:
        rows = rows.filter(message__icontains=q)
    if level in LEVELS:
        rows = rows.filter(level=level)
    return rows.filter(kind=kind) if kind else rows


@require_safe
@page()
def run_recent(request: PageRequest) -> HttpResponse:
    """The recent runs of the sidebar."""
    return show(request, "runs/_recent.html", {"recent": selectors.recent()})


@require_safe
@page()
def run_switch(request: PageRequest) -> HttpResponse:
    """Other runs (`run=` left out), each at the same `tab=`."""
    here = next(iter(row_ids([request.GET.get("run", "")])), None)
    name = tab_page(request.GET.get("tab", ""))
    others = [
        (run, reverse(name if run.kind == "rl" or name != "rollouts:of-run" else "runs:detail", args=[run.pk]))
        for run in selectors.recent(besides=here, count=SWITCHES)
    ]
    return show(request, "runs/_switch.html", {"others": others})
