"""Views for importing external tasks and trajectories, and for a suite's difficulty."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.api.downloads import download
from composer_web.core.errors import UserError
from composer_web.evals.results.prepass import prepass
from composer_web.policies.selectors import references
from composer_web.repositories.models import Environment
from composer_web.tasks import difficulty, selectors
from composer_web.tasks.exchange import importing
from composer_web.tasks.http.path import suite_in_play
from composer_web.tasks.http.tables import TrajectoryTable
from composer_web.tasks.models import Suite
from composer_web.ui.pages import PageRequest, act, page, refuse, show

PER_PAGE = 50
MAX_UPLOAD = 256 << 20
MAX_TEXT = 4000
MAX_STEPS = 100
MAX_ENVIRONMENTS = 500


@require_safe
@page("reviewer")
def imports(request: PageRequest) -> HttpResponse:
    table = TrajectoryTable(selectors.imported_trajectories())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    ready = Environment.objects.filter(state="ready").order_by("name").values_list("name", flat=True)
    return show(
        request,
        "tasks/imports.html",
        {
            "tab": "imports",
            "table": table,
            "into": suite_in_play(request),
            "environments": ready[:MAX_ENVIRONMENTS],
            "purposes": Suite._meta.get_field("purpose").choices,
        },
    )


@require_POST
@page("reviewer")
def import_tasks(request: PageRequest) -> HttpResponse:
    """A suite from a zip of Harbor directories or from SWE-bench's rows: all of it or nothing."""
    given = request.POST
    try:
        data, name = _upload(request)
        suite, losses = importing.import_suite(
            data,
            name=given.get("name", ""),
            format=given.get("format", "harbor"),  # type: ignore[arg-type]
            environment=given.get("environment", ""),
            purpose=given.get("purpose", "benchmark"),
            told=name,
            actor=request.user,
        )
    except UserError as error:
        return refuse(request, error, to="tasks:imports")
    _say(request, f"{suite.memberships.count()} tasks imported.", losses)
    return redirect("tasks:suite", name=suite.name)


@require_POST
@page("reviewer")
def import_trajectory(request: PageRequest) -> HttpResponse:
    try:
        name, losses = importing.keep_trajectory(_upload(request)[0], actor=request.user)
    except UserError as error:
        return refuse(request, error, to="tasks:imports")
    _say(request, "The trajectory is kept.", losses)
    return redirect("tasks:trajectory", name=name)


@require_safe
@page("reviewer")
def trajectory(request: PageRequest, name: str) -> HttpResponse:
    record = importing.kept_trajectory(name)
    form = request.GET.get("as", "")
    if form:
        try:
            data, losses = importing.write_trajectory(record, form)  # type: ignore[arg-type]
        except UserError as error:
            return HttpResponse(str(error), status=422, content_type="text/plain")
        return download(data, f"{name}.{form}.json", losses)
    context = {
        "tab": "imports", "name": name, "record": record, "steps": record.steps[:MAX_STEPS], "max_text": MAX_TEXT,
        "tokens": sum(len(step.completion_token_ids) for step in record.steps),
        "calls": sum(len(step.calls) for step in record.steps), "formats": list(importing.WRITERS),
    }  # fmt: skip
    return show(request, "tasks/trajectory.html", context)


@require_safe
@page()
def suite_difficulty(request: PageRequest, name: str) -> HttpResponse:
    suite = selectors.get_suite(name)
    chosen = request.GET.get("policy", "")
    measured = difficulty.of_suite(suite)
    context = {
        "suite": suite,
        "measured": measured,
        "policy": chosen,
        "tasks": difficulty.tasks_of(suite, policy=chosen or (measured[0].policy if measured else "")),
        "references": references() if request.user.may("operator") else [],
        "samples": difficulty.SAMPLES,
    }
    return show(request, "tasks/difficulty.html", context)


@require_POST
@page("operator")
def suite_prepass(request: PageRequest, name: str) -> HttpResponse:
    """Measure how hard a suite is for a policy: an evaluation over its tasks."""
    suite = selectors.get_suite(name)
    given = request.POST

    def start() -> None:
        try:
            tasks, samples = int(given.get("tasks") or 0), int(given.get("samples") or difficulty.SAMPLES)
        except ValueError as error:
            raise UserError("samples", f"tasks and samples are whole numbers: {error}") from error
        prepass(suite=suite, reference=given.get("policy", ""), tasks=tasks, samples=samples, actor=request.user)

    done = "The pre-pass is on its way; its figures appear here when it has finished."
    return act(request, start, done=done, to="tasks:suite-difficulty", name=name)


def _upload(request: PageRequest) -> tuple[bytes, str]:
    """(content, name) of the file. Raises UserError."""
    upload = request.FILES.get("file")
    if upload is None or not upload.size:
        raise UserError("file", "choose a file that is not empty")
    if upload.size > MAX_UPLOAD:
        raise UserError("file", f"{upload.size} bytes; at most {MAX_UPLOAD} are read")
    return upload.read(), str(upload.name)


def _say(request: PageRequest, done: str, losses: list[str]) -> None:
    messages.success(request, " ".join([done, *(f"Not carried: {one}." for one in losses)]))
