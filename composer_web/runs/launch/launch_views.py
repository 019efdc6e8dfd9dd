"""Views of templates and sweeps."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.errors import UserError
from composer_web.core.numbers import ROW_ID, whole
from composer_web.runs import selectors
from composer_web.runs.charts import comparing, panels
from composer_web.runs.launch import sweeps
from composer_web.runs.launch import templates as kept
from composer_web.runs.launch.config_io import load
from composer_web.runs.launch.form_views import origin
from composer_web.runs.launch.launch_tables import SweepTable
from composer_web.runs.launch.schema_form import headings
from composer_web.runs.live.charting import places
from composer_web.ui.pages import PageRequest, act, page, show

PER_PAGE = 25


@require_safe
@page()
def template_list(request: PageRequest) -> HttpResponse:
    return show(request, "runs/templates.html", {"templates": kept.templates()})


@require_POST
@page("operator")
def template_change(request: PageRequest, pk: int) -> HttpResponse:
    """Change a template's name and description. The settings are edited in the run form."""
    template = kept.get_template(pk)
    name, description = request.POST.get("name", ""), request.POST.get("description", "")
    return act(
        request,
        lambda: kept.change_template(template=template, name=name, description=description, actor=request.user),
        done="Changed.",
        to="runs:templates",
    )


@require_POST
@page("operator")
def template_delete(request: PageRequest, pk: int) -> HttpResponse:
    template = kept.get_template(pk)
    return act(
        request,
        lambda: kept.delete_template(template=template, actor=request.user),
        done=f"Template “{template.name}” is deleted; runs that were started from it stay.",
        to="runs:templates",
    )


@require_safe
@page()
def sweep_list(request: PageRequest) -> HttpResponse:
    table = SweepTable(sweeps.sweeps())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "runs/sweeps.html"
    return show(request, template, {"table": table, "live": "runs"})


@require_POST
@page("operator")
def sweep_create(request: PageRequest) -> HttpResponse:
    """Create the previewed sweep. An outdated preview shows why nothing was created."""
    parent = whole(request.POST.get("parent", ""), digits=ROW_ID)
    try:
        made = sweeps.create_sweep(
            config=load(request.POST.get("text", "")),
            fields=sweeps.parse_fields(request.POST.get("sweep", "")),
            mode=request.POST.get("sweep_mode", "grid"),
            parent=None if parent is None else selectors.get_run(parent),
            start=request.POST.get("action") == "start",
            actor=request.user,
        )
    except UserError as error:
        given = request.POST
        context = {
            "problems": list(error.fields.values()) or [error.message],
            "text": given.get("text", ""),
            "fields": given.get("sweep", ""),
            "mode": given.get("sweep_mode", "grid"),
            "origin": origin(given),
        }
        return show(request, "runs/sweep_refused.html", context, status=422)
    return redirect("runs:sweep", pk=made.pk)


@require_safe
@page()
def sweep_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Runs of a sweep with the varied settings, their outcomes and overlaid curves."""
    sweep = sweeps.get_sweep(pk)
    runs = sweeps.members(sweep)
    outcomes = comparing.outcomes(runs)
    for index, run in enumerate(runs):
        run.outcomes = [row.values[index] for row in outcomes]  # type: ignore[attr-defined]
    drawn = runs[: comparing.MAX_RUNS]
    template = "runs/_sweep_runs.html" if request.headers.get("HX-Request") else "runs/sweep.html"
    context = {
        "sweep": sweep,
        "headings": headings(list(sweep.varied)),
        "runs": runs,
        "outcomes": outcomes,
        "drawn": drawn,
        "most": comparing.MAX_RUNS,
        "panels": panels.overlaid([run.kind for run in drawn][:1])[:4],
        **places(drawn),
    }
    return show(request, template, context)
