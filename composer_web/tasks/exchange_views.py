"""Views of generators, and task export actions."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig
from pydantic import ValidationError

from composer_web.core.errors import UserError
from composer_web.tasks import generation_jobs, interchange, selectors
from composer_web.tasks.api import download
from composer_web.tasks.generating import Wanted, request_suite, rewriters, sources
from composer_web.tasks.tables import GeneratorRunTable
from composer_web.ui.pages import PageRequest, act, page, show
from sandbox.tasks.generators.instructions import STYLES
from sandbox.tasks.generators.producing import GENERATORS
from sandbox.tasks.spec import TaskSpec

PER_PAGE = 50


@require_safe
@page()
def generator_list(request: PageRequest) -> HttpResponse:
    if request.GET.get("part") == "orders":
        return show(request, "tasks/_orders.html", {"orders": generation_jobs.recent()})
    table = GeneratorRunTable(selectors.generator_runs())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "tasks/generators.html"
    context = {
        "table": table,
        "tab": "generators",
        "live": "suites",
        "orders": generation_jobs.recent(),
        "chosen": request.GET.getlist("package"),
        "totals": selectors.generator_totals(),
        "packages": sorted(sources()),
        "rewriters": rewriters(),
        "generators": GENERATORS,
        "styles": STYLES,
        "may_review": request.user.may("reviewer"),
    }
    return show(request, template, context)


@require_POST
@page("reviewer")
def generator_run(request: PageRequest) -> HttpResponse:
    given = request.POST

    def start() -> None:
        try:
            wanted = Wanted.model_validate(
                {
                    "name": given.get("name", ""),
                    "purpose": given.get("purpose", "train"),
                    "packages": given.getlist("packages"),
                    "generators": given.getlist("generators") or ["mutation"],
                    "styles": given.getlist("styles") or ["precise"],
                    "count": given.get("count") or 4,
                    "seed": given.get("seed") or 0,
                    "rewriter": given.get("rewriter", ""),
                }
            )
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[0]
            raise UserError(".".join(map(str, found["loc"])), found["msg"]) from error
        request_suite(wanted, actor=request.user)

    done = "The generators are on their way to the build workers; below is what becomes of it."
    return act(request, start, done=done, to="tasks:generators")


@require_safe
@page("operator")
def task_export(request: PageRequest, slug: str, form: str) -> HttpResponse:
    version = selectors.get_task(slug).versions.order_by("-number")[0]
    return _export([version.bundle], slug, form)


@require_safe
@page("operator")
def suite_export(request: PageRequest, name: str, form: str) -> HttpResponse:
    versions = selectors.get_suite(name).versions.order_by("memberships__position")
    return _export([version.bundle for version in versions], name, form)


def _export(specs: list[TaskSpec], name: str, form: str) -> HttpResponse:
    if form not in ("harbor", "swe-bench"):
        raise Http404(f"there is no format {form!r}")
    try:
        data, losses = interchange.export_tasks(specs, form)  # type: ignore[arg-type]
    except UserError as error:
        return HttpResponse(str(error), status=422, content_type="text/plain")
    return download(data, f"{name}.{'zip' if form == 'harbor' else 'jsonl'}", losses)
