"""Views of environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.core.queue import overview
from composer_web.repositories import building, services
from composer_web.repositories.http import selectors
from composer_web.repositories.http.forms import RepositoryForm
from composer_web.repositories.http.tables import EnvironmentTable
from composer_web.repositories.models import Environment, EnvironmentTransition
from composer_web.rollouts.trajectory.transcript import clip
from composer_web.tasks import selectors as tasks
from composer_web.tasks.http.tables import TaskTable
from composer_web.ui.pages import PageRequest, act, page, show

PER_PAGE = 50
MAX_LOG = 100_000
FIRST = (
    *("language", "test_command", "tests", "flaky", "test_seconds", "unseen_goals_met", "sample_of_the_suite"),
    *("functions_covered", "source_roots", "version", "packages", "bytes", "leak_scan", "attempts", "install_seconds"),
)


@require_safe
@page()
def environment_list(request: PageRequest) -> HttpResponse:
    table = EnvironmentTable(selectors.environments())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "repositories/list.html"
    context = {"table": table, "tab": "environments", "live": "environments", "packages": building.locked_packages()}
    return show(request, template, context)


@require_POST
@page("operator")
def environment_build(request: PageRequest) -> HttpResponse:
    """Ask the build workers for a pinned package; one that failed is tried again."""
    name = request.POST.get("package", "")
    done = f"{name} is on its way to the build workers; its page shows how far it is."
    return act(
        request, lambda: building.request_package(name=name, actor=request.user), done=done, to="repositories:list"
    )


@require_http_methods(["GET", "HEAD", "POST"])
@page("operator")
def repository_new(request: PageRequest) -> HttpResponse:
    """The form of a new repository; what was typed stays when it is refused, the token apart."""
    form = RepositoryForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        try:
            repository = form.save(actor=request.user)
        except UserError as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
        else:
            messages.success(request, f"{repository.name} is on its way to the build workers; the log below is live.")
            return redirect("repositories:detail", pk=repository.environment.pk)
    return show(request, "repositories/new.html", {"form": form, "tab": "environments"}, 400 if form.errors else 200)


@require_POST
@page("operator")
def environment_again(request: PageRequest, pk: int) -> HttpResponse:
    environment = selectors.get_environment(pk)
    return act(
        request, lambda: services.build_again(environment=environment, actor=request.user),
        done=f"{environment.name} is built again.", to="repositories:detail", pk=pk,
    )  # fmt: skip


@require_POST
@page("operator")
def environment_cancel(request: PageRequest, pk: int) -> HttpResponse:
    environment = selectors.get_environment(pk)
    return act(
        request, lambda: services.cancel_build(environment=environment, actor=request.user),
        done=f"The build of {environment.name} stops.", to="repositories:detail", pk=pk,
    )  # fmt: skip


@require_safe
@page()
def environment_detail(request: PageRequest, pk: int) -> HttpResponse:
    environment = selectors.get_environment(pk)
    history = list(environment.transitions.order_by("-id")[:20])
    table = TaskTable(tasks.tasks().filter(versions__environment=environment).distinct(), exclude=("select",))
    table.empty_template = "repositories/tasks_empty.html"
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    context = {
        "environment": environment,
        "facts": facts(environment),
        "table": table,
        "history": history,
        "log": _log(environment),
        "packages": building.locked_packages(),
        "may_review": request.user.may("reviewer"),
        "makes_tasks": environment.state == "ready" and environment.detail.get("language", "python") == "python",
        **_progress(environment, history),
    }
    return show(request, "repositories/detail.html", context)


def _progress(environment: Environment, history: Sequence[EnvironmentTransition]) -> dict[str, Any]:
    """How far a build is: since when, which try, what builds usually take here, and whether anyone builds at all."""
    if environment.state not in ("requested", "building"):
        return {"waiting": False}
    return {
        "waiting": True,
        "since": history[0].at if history else environment.created_at,
        "attempt": sum(step.to_state == "building" for step in history),
        "most": services.MAX_BUILDS,
        "usual": selectors.build_seconds(),
        "builders": any("build" in w.detail.get("queues", ()) and w.state == "alive" for w in overview.workers()),
    }


def facts(environment: Environment) -> list[tuple[str, Any]]:
    """What a build found, what people look for first; the database keeps no order of its own."""
    shown_elsewhere = {"pin", "licence", "record"} if environment.repository else {"record"}
    rest = sorted(environment.detail.keys() - shown_elsewhere - set(FIRST))
    return [(name, environment.detail[name]) for name in (*FIRST, *rest) if name in environment.detail]


def _log(environment: Environment) -> str:
    try:
        return clip(selectors.build_log(environment), MAX_LOG)[0]
    except ArtifactError as error:
        return str(error)
