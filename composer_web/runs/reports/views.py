"""Pages of reports: list, reading, editing, and adding a panel from the charts of runs."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect
from django_tables2 import RequestConfig

from composer_web.core.errors import Conflict, UserError
from composer_web.core.numbers import ROW_ID, row_ids, whole
from composer_web.runs import selectors
from composer_web.runs.models import Report
from composer_web.runs.reports import drafts, services
from composer_web.runs.reports.blocks import PanelBlock, parse
from composer_web.runs.reports.drafts import OFFERED, DraftBlock
from composer_web.runs.reports.drawing import all_drawn
from composer_web.runs.reports.tables import ReportTable
from composer_web.ui.pages import PageRequest, act, page, rows, show

PER_PAGE = 50
CHOICES = 50
"""Reports that a panel can be added to from a chart: those changed last."""


@require_safe
@page()
def report_list(request: PageRequest) -> HttpResponse:
    table = ReportTable(services.reports())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    return (
        rows(request, table)
        if request.headers.get("HX-Request")
        else show(request, "reports/list.html", {"table": table})
    )


@require_safe
@page()
def report_detail(request: PageRequest, pk: int) -> HttpResponse:
    report = services.get_report(pk)
    content = services.content_of(report)
    context = {
        "report": report,
        "blocks": all_drawn(content, services.runs_of(content.run_ids)),
        "link": request.build_absolute_uri(reverse("runs:report", args=[pk])),
    }
    return show(request, "reports/detail.html", context)


@page("operator")
def report_new(request: PageRequest) -> HttpResponse:
    """An empty report. `?run=`: with a panel of these runs to be filled."""
    if request.method == "POST":
        return _save(request, None)
    asked = row_ids(request.GET.getlist("run"))
    blocks = [drafts.new_block("text")]
    if asked:
        block = drafts.new_block("panel")
        block.runs = asked
        blocks.append(block)
    return _editor(request, None, blocks, {"title": "", "description": "", "version": 0})


@page("operator")
def report_edit(request: PageRequest, pk: int) -> HttpResponse:
    report = services.get_report(pk)
    if request.method == "POST":
        return _save(request, report)
    kept = {"title": report.title, "description": report.description, "version": report.version}
    return _editor(request, report, drafts.of_report(report), kept)


def _save(request: PageRequest, report: Report | None) -> HttpResponse:
    blocks = drafts.of_form(request.POST)
    title, description = request.POST.get("title", ""), request.POST.get("description", "")
    version = whole(request.POST.get("version", ""), digits=9)
    drafts.resolve(blocks)
    given: dict[str, Any] = {
        "title": title,
        "description": description,
        "blocks": [block.raw() for block in blocks],
        "actor": request.user,
    }
    try:
        if drafts.typed_left(blocks):
            raise UserError("typed", "Report not saved; fix the highlighted fields")
        if report is None:
            saved = services.create_report(**given)
        else:
            saved = services.update_report(report=report, version=version, **given)
    except UserError as error:
        errors = drafts.place_errors(blocks, error)
        if report is not None and isinstance(error, Conflict):
            version = report.version  # who saves again after this warning replaces it knowingly
        kept = {"title": title, "description": description, "version": version, "refused": True, "errors": errors}
        return _editor(request, report, blocks, kept, resolved=True)
    messages.success(request, "Report saved.")
    where = reverse("runs:report", args=[saved.pk])
    return HttpResponseClientRedirect(where) if request.headers.get("HX-Request") else HttpResponseRedirect(where)


def _editor(
    request: PageRequest,
    report: Report | None,
    blocks: list[DraftBlock],
    kept: dict[str, Any],
    *,
    resolved: bool = False,
) -> HttpResponse:
    if not resolved:
        drafts.resolve(blocks)
    context = {"report": report, "blocks": blocks, **kept, **_offered()}
    template = "reports/_editor.html" if request.headers.get("HX-Request") else "reports/edit.html"
    answer = show(request, template, context, status=422 if kept.get("refused") else 200)
    if kept.get("refused"):
        answer["HX-Retarget"] = "#report-editor"  # js/failures.js swaps a refusal that says where it goes
    return answer


def _offered() -> dict[str, Any]:
    return {"offered": selectors.named("", count=OFFERED)}


@require_POST
@page("operator")
def report_block(request: PageRequest) -> HttpResponse:
    """One block of the editor: a new one (`kind=`), or what the panel `only=` of the posted form draws now."""
    only = request.POST.get("only")
    if only is None:
        return show(request, "reports/_block.html", {"block": drafts.new_block(request.POST.get("kind", ""))})
    block = next((one for one in drafts.of_form(request.POST) if one.uid == only), None)
    if block is None:
        raise Http404("the form has no such block")
    drafts.resolve([block])
    return show(request, "reports/_drawn.html", {"block": block})


@require_POST
@page("operator")
def report_delete(request: PageRequest, pk: int) -> HttpResponse:
    report = services.get_report(pk)
    done = f"Report “{report.title}” deleted."
    return act(request, lambda: services.delete_report(report=report, actor=request.user), done=done, to="runs:reports")


@page("operator")
def report_add(request: PageRequest) -> HttpResponse:
    """Add a panel (`title`, `key`, `run`, `axis`, `smoothing`, `group`) to a report (`report`), or to a new one (`name`)."""
    given = request.POST if request.method == "POST" else request.GET
    context: dict[str, Any] = {
        "given": given,
        "choices": services.reports().select_related(None).only("pk", "title")[:CHOICES],
    }
    if request.method == "POST":
        try:
            context["added"] = _added(request, given)
        except UserError as error:
            context |= {"field": error.field.split(".")[-1], "message": error.message}
    context["keys"], context["runs"] = given.getlist("key"), given.getlist("run")
    return show(request, "reports/_add.html", context)


def _added(request: PageRequest, given: QueryDict) -> Report:
    """Raises UserError."""
    raw = {
        "kind": "panel",
        "title": given.get("title", ""),
        "keys": given.getlist("key"),
        "runs": row_ids(given.getlist("run")),
        **{name: given[name] for name in ("axis", "smoothing", "group") if given.get(name)},
    }
    (panel,) = parse([raw]).blocks
    assert isinstance(panel, PanelBlock)
    chosen = whole(given.get("report", ""), digits=ROW_ID)
    if chosen is None:
        return services.create_report(
            title=given.get("name", ""), blocks=[panel.model_dump(mode="json")], actor=request.user
        )
    return services.add_panel(report=services.get_report(chosen), panel=panel, actor=request.user)
