"""The tabs of a run below its overview: charts, evaluations, configuration, logs, system; and the run switcher."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, cast

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import escape
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect

from composer_web.core.errors import Denied, UserError
from composer_web.core.numbers import row_ids
from composer_web.runs import logs, metrics, selectors
from composer_web.runs.charts import layouts
from composer_web.runs.launch.config_io import render
from composer_web.runs.live import parts
from composer_web.runs.live.charting import charts, places
from composer_web.runs.live.status import figures
from composer_web.runs.models import Run, RunEvent
from composer_web.runs.templatetags.runframe import tab_page
from composer_web.ui.pages import PageRequest, page, show
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
    layout, scope = layouts.of_run(run)
    shown = {
        "panels": layouts.arranged(run, layout),
        "scope": scope,
        "may_set_default": layouts.may_set_default(request.user),
        "names": metrics.names(run),
        **charts([run]),
    }
    return show(request, "runs/charts.html", {**tab_context(run, "charts"), **shown})


@require_safe
@page()
def run_panel(request: PageRequest, pk: int) -> HttpResponse:
    """One panel of metrics (`?key=`, several) under a title, to be put into the grid."""
    run = selectors.get_run(pk)
    given = {name: request.GET.get(name, "").strip() for name in ("title", "section")}
    keys = [key for key in request.GET.getlist("key") if key]
    try:
        panel = layouts.new_panel(run, keys=keys, **given)
    except UserError as error:
        return _refused(error, "#panel-refused")
    return show(request, "partials/chart.html", {"panel": panel, "editing": True, **places([run])})


def _refused(error: UserError, place: str) -> HttpResponse:
    """The reason, shown at `place` of the page, which stays as it is."""
    return HttpResponse(escape(error.message), status=422, headers={"HX-Retarget": place, "HX-Reswap": "innerHTML"})


@require_POST
@page("operator")
def run_panels(request: PageRequest, pk: int) -> HttpResponse:
    """Save the panels of the charts page (`panels`, JSON) for a `scope`, or delete those of the scope `reset`."""
    run = selectors.get_run(pk)
    reset = request.POST.get("reset", "")
    scope = reset or request.POST.get("scope", "run")
    try:
        if scope not in layouts.SCOPES:
            raise UserError("scope", f"scope: use one of {', '.join(layouts.SCOPES)}; found {scope[:40]!r}")
        if reset:
            layouts.reset(run=run, scope=cast(layouts.Scope, scope), actor=request.user)
        else:
            layouts.save(run=run, scope=cast(layouts.Scope, scope), layout=_layout(request), actor=request.user)
    except Denied:
        raise
    except UserError as error:
        return _refused(error, "#panels-refused")
    messages.success(request, "Panels reset." if reset else "Panels saved.")
    where = reverse("runs:charts", args=[pk])
    return HttpResponseClientRedirect(where) if request.headers.get("HX-Request") else redirect(where)


def _layout(request: PageRequest) -> layouts.Layout:
    """Raises UserError."""
    try:
        return layouts.parse(json.loads(request.POST.get("panels", "")[:MAX_JSON]))
    except json.JSONDecodeError as error:
        raise UserError("panels", f"panels: no JSON: {error}") from error


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
