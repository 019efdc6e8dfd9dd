"""Views of list exports and trajectory downloads."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import Denied, UserError
from composer_web.rollouts import selectors
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.exports import records
from composer_web.rollouts.exports.exported import TABLES, table
from composer_web.rollouts.trajectory import trajectory_store
from composer_web.rollouts.worker import standalone
from composer_web.ui.pages import PageRequest, page, refuse, show
from composer_web.ui.streaming import streamed, streamed_file
from composer_web.ui.table_writers import TYPES

SHOWN = 100


@require_safe
@page()
def export_list(request: PageRequest) -> HttpResponse:
    """The user's exports. A part of the page refreshes while one is unfinished."""
    rows = list(exports.own(request.user)[:SHOWN])
    for export in rows:
        export.table = table(export.what)  # type: ignore[attr-defined]  # for the template
        export.filters = export.table.words(export.query)  # type: ignore[attr-defined]
        export.readable = request.user.may(table(export.what).role)  # type: ignore[attr-defined]
    working = any(export.state in ("waiting", "running") for export in rows)
    template = "rollouts/_exports.html" if request.headers.get("HX-Request") else "rollouts/exports.html"
    return show(request, template, {"exports": rows, "working": working})


@require_POST
@page()
def export_new(request: PageRequest) -> HttpResponse:
    """Request an export. Errors are shown on the page of origin."""
    posted = request.POST
    what = posted.get("what", "rollouts")
    try:
        exports.ask(owner=request.user, what=what, format=posted.get("format", ""), query=posted.get("query", ""))
    except Denied:
        raise
    except UserError as error:
        return refuse(request, error, to=table(what).page if what in TABLES else "rollouts:list")
    return redirect("rollouts:exports")


@require_safe
@page()
def export_file(request: PageRequest, pk: int) -> HttpResponseBase:
    """Download the file, for its owner and only while its content is still readable to them."""
    export, file = exports.opened(request.user, pk)
    return streamed_file(request, file, content_type=TYPES[export.format])


FORMATS = {"html": "text/html", "jsonl": "application/jsonl", "atif": "application/json"}


@require_safe
@page()
def trajectory_file(request: PageRequest, pk: int, form: str) -> HttpResponseBase:
    """Download one trajectory as a standalone page, JSON lines or ATIF."""
    if form not in FORMATS:
        raise Http404(f"a trajectory is exported as {', '.join(FORMATS)}, not {form!r}")
    rollout = selectors.get_rollout(pk)
    try:
        if form == "html":
            pieces = standalone.page(rollout, trajectory_store.of(rollout))
        elif form == "jsonl":
            pieces = standalone.lines(rollout)
        else:
            pieces = records.as_atif(rollout)
    except (ArtifactError, UserError) as error:
        raise Http404(str(error)) from error
    name = f"rollout-{pk}.{'atif.json' if form == 'atif' else form}"
    return streamed(request, pieces, content_type=f"{FORMATS[form]}; charset=utf-8", name=name)
