"""Pages of environments."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_GET
from django_tables2 import RequestConfig

from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.pages import PageRequest, page, show
from composer_web.repositories import selectors
from composer_web.repositories.models import Environment
from composer_web.repositories.tables import EnvironmentTable
from composer_web.rollouts.transcript import clip
from composer_web.tasks import selectors as tasks
from composer_web.tasks.tables import TaskTable

PER_PAGE = 50
MAX_LOG = 100_000


@require_GET
@page()
def environment_list(request: PageRequest) -> HttpResponse:
    table = EnvironmentTable(selectors.environments())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "repositories/list.html"
    return show(request, template, {"table": table, "tab": "environments", "live": "environments"})


@require_GET
@page()
def environment_detail(request: PageRequest, pk: int) -> HttpResponse:
    environment = selectors.get_environment(pk)
    table = TaskTable(tasks.tasks().filter(versions__environment=environment).distinct())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    context = {
        "environment": environment,
        "table": table,
        "history": environment.transitions.order_by("-id")[:20],
        "log": _log(environment),
    }
    return show(request, "repositories/detail.html", context)


def _log(environment: Environment) -> str:
    try:
        return clip(selectors.build_log(environment), MAX_LOG)[0]
    except ArtifactError as error:
        return str(error)
