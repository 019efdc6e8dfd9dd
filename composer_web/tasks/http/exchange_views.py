"""Views of generators, and task export actions."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig
from pydantic import ValidationError

from composer_web.api.downloads import download
from composer_web.core.errors import UserError
from composer_web.tasks import generation_jobs, selectors
from composer_web.tasks.exchange import interchange
from composer_web.tasks.generating import Wanted, request_suite, rewriters, sources
from composer_web.tasks.http.path import suite_in_play
from composer_web.tasks.http.tables import GeneratorRunTable
from composer_web.ui.pages import PageRequest, act, page, show
from sandbox.generators.building.instructions import STYLES
from sandbox.generators.registry import GENERATORS
from sandbox.tasks.spec import TaskSpec

PER_PAGE = 50


@require_safe
@page()
def generator_list(request: PageRequest) -> HttpResponse:
    if request.GET.get("part") == "jobs":
        return show(request, "tasks/_generation_jobs.html", _jobs(request))
    table = GeneratorRunTable(selectors.generator_runs())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "tasks/generators.html"
    context = {
        "table": table,
        "tab": "generators",
        "live": "suites",
        **_jobs(request),
        "chosen": request.GET.getlist("package"),
        "into": suite_in_play(request),
        "totals": selectors.generator_totals(),
        "packages": sorted(sources()),
        "rewriters": rewriters(),
        "generators": GENERATORS,
        "styles": STYLES,
    }
    return show(request, template, context)


def _jobs(request: PageRequest) -> dict[str, object]:
    return {"jobs": generation_jobs.recent(), "may_review": request.user.may("reviewer")}


@require_POST
@page("reviewer")
def generation_stop(request: PageRequest, pk: int) -> HttpResponse:
    def stop() -> None:
        generation_jobs.stop(pk, actor=request.user)

    return act(request, stop, done="The generation job was stopped.", to="tasks:generators")


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

    done = "Generation job created; its progress is shown below."
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
