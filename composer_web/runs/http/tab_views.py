"""The tabs of a run below its overview: charts, evaluations, configuration, logs, system; and the run switcher."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from composer_web.core.errors import UserError
from composer_web.core.numbers import row_ids
from composer_web.runs import logs, metrics, selectors
from composer_web.runs.charts import layouts, panels
from composer_web.runs.launch.config_io import render
from composer_web.runs.live import parts
from composer_web.runs.live.charting import charts, places
from composer_web.runs.live.status import figures
from composer_web.runs.models import Run, RunEvent
from composer_web.runs.templatetags.runframe import tab_page
from composer_web.ui.pages import PageRequest, act, page, show
from composer_web.ui.texts import snippets

PER_PAGE = 200
MAX_JSON = 60_000
LEVELS = ("info", "warning", "error")
NAMES = 50
SWITCHES = 12
"""Number of other runs that the switcher offers. The command palette finds the rest."""


def tab_context(run: Run, tab: str, *shown: str) -> dict[str, Any]:
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
    _, scope = layouts.of_run(run)
    shown = {"panels": layouts.panels_of(run), "scope": scope, "names": metrics.names(run), **charts([run])}
    return show(request, "runs/charts.html", {**tab_context(run, "charts"), **shown})


@require_safe
@page()
def run_panel(request: PageRequest, pk: int) -> HttpResponse:
    """One panel of metrics (`?key=`, up to eight) under a title, to be put into the grid."""
    run = selectors.get_run(pk)
    keys = request.GET.getlist("key")
    spec = {"title": request.GET.get("title", "").strip() or ", ".join(keys)[:80], "keys": keys}
    section = {"section": request.GET.get("section", "").strip()}
    try:
        layout = layouts.parse([spec | section])
    except UserError as error:
        return show(request, "422.html", {"field": error.field, "message": error.message}, status=422)
    (panel,) = layouts.arrange(layout.panels, panels.headline(run.kind, run.latest))
    return show(request, "partials/chart.html", {"panel": panel, "editing": True, **places([run])})


@require_POST
@page("operator")
def run_panels(request: PageRequest, pk: int) -> HttpResponse:
    """Save the panels of the charts page (`panels`, JSON) for the run or its project, or go back to the built-in ones."""
    run = selectors.get_run(pk)
    scope: layouts.Scope = "project" if request.POST.get("scope") == "project" else "run"

    def change() -> None:
        if request.POST.get("reset"):
            layouts.reset(run=run, scope=scope, actor=request.user)
            return
        try:
            given = json.loads(request.POST.get("panels", "")[:MAX_JSON])
        except json.JSONDecodeError as error:
            raise UserError("panels", f"panels: no JSON: {error}") from error
        layouts.save(run=run, scope=scope, layout=layouts.parse(given), actor=request.user)

    return act(request, change, done="Panels saved.", to="runs:charts", pk=pk)


@require_safe
@page()
def run_evals(request: PageRequest, pk: int) -> HttpResponse:
    return show(request, "runs/evals.html", tab_context(selectors.get_run(pk), "evals", "evals"))


@require_safe
@page()
def run_config(request: PageRequest, pk: int) -> HttpResponse:
    run = selectors.get_run(pk)
    snippet = snippets.run(snippets.address(request), json.dumps(run.config), render(run.configuration, "yaml"))
    return show(request, "runs/config.html", {**tab_context(run, "config"), "snippet": snippet})


@require_safe
@page()
def run_logs(request: PageRequest, pk: int) -> HttpResponse:
    """Events of the run, newest first, narrowed by text (`q=`), `level=` and `kind=`; with `source=processes` log lines."""
    run = selectors.get_run(pk)
    if request.GET.get("source") == "processes":
        return _process_logs(request, run)
    asked = {name: request.GET.get(name, "")[:100] for name in ("q", "level", "kind")}
    found = Paginator(_events(run, **asked), PER_PAGE).get_page(request.GET.get("page"))
    kinds = sorted(set(run.events.order_by().values_list("kind", flat=True)))
    context = {**tab_context(run, "logs"), "found": found, "kinds": kinds, "levels": LEVELS, **asked}
    return show(request, "runs/_log.html" if request.headers.get("HX-Request") else "runs/logs.html", context)


def _process_logs(request: PageRequest, run: Run) -> HttpResponse:
    """Log lines of the run's processes, narrowed by text, level and `process=`."""
    asked = {name: request.GET.get(name, "")[:120] for name in ("q", "level", "process")}
    shown = {
        "found": Paginator(logs.found(run, **asked), PER_PAGE).get_page(request.GET.get("page")),
        "processes": logs.processes(run),
        "levels": logs.LEVELS,
        "max_lines": logs.MAX_LINES,
    }
    template = "runs/_process_log.html" if request.headers.get("HX-Request") else "runs/process_logs.html"
    return show(request, template, {**tab_context(run, "logs"), **shown, **asked})


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
def run_names(request: PageRequest) -> HttpResponse:
    """Names of the newest runs, for fields that take a run. A name that two of them have is offered by its number."""
    found = selectors.recent(count=NAMES)
    names = Counter(run.name.lower() for run in found)
    offered = [(run.name if names[run.name.lower()] == 1 else str(run.pk), run) for run in found]
    return show(request, "runs/_names.html", {"runs": offered})


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


@require_safe
@page()
def run_preview(request: PageRequest, pk: int) -> HttpResponse:
    """What a list shows beside its rows."""
    run = selectors.get_run(pk)
    return show(request, "runs/_preview.html", {"run": run, "figures": figures(run, {})})
