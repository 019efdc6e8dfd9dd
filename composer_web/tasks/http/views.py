"""Views of tasks and suites."""

from __future__ import annotations

from collections.abc import Mapping

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.numbers import row_ids
from composer_web.evals import selectors as evals
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.http.tables import RolloutTable
from composer_web.rollouts.trajectory.transcript import clip, diff_view
from composer_web.tasks import reviewing, selectors, services
from composer_web.tasks.curation.comparing import environment_files, gold_diff
from composer_web.tasks.curation.filters import TaskFilter
from composer_web.tasks.difficulty import of_suite
from composer_web.tasks.http.path import steps
from composer_web.tasks.http.tables import MemberTable, SuiteTable, TaskTable
from composer_web.tasks.models import Split, Task
from composer_web.ui import saved_views
from composer_web.ui.filters import strict
from composer_web.ui.pages import PageRequest, act, page, rows, show
from composer_web.ui.tables import chosen_columns
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec

PER_PAGE = 50
PREVIEWED = 5
"""Scores beside the list of suites."""
MAX_FILE = 20_000
FILES_PER_PAGE = 20


@require_safe
@page()
def task_list(request: PageRequest) -> HttpResponse:
    found = strict(TaskFilter, request.GET, queryset=selectors.tasks(), request=request)
    may_review = request.user.may("reviewer")
    table = TaskTable(found.qs, chosen=chosen_columns(request), exclude=() if may_review else ("select",))
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return rows(request, table)
    context = {
        "table": table,
        "filter": found,
        "tab": "tasks",
        "may_review": may_review,
        "live": "tasks",
        "query": request.GET.urlencode(),
        "saved": saved_views.offered(request, request.user, "tasks"),
        "previews": True,
        "columns": table.offered(),
        "splits": Split.choices,
        "suite_names": selectors.suites().values_list("name", flat=True)[:200],
    }
    return show(request, "tasks/list.html", context)


@require_safe
@page()
def task_preview(request: PageRequest, slug: str) -> HttpResponse:
    """What the list shows beside its rows."""
    task = selectors.get_task(slug)
    return show(request, "tasks/_preview.html", {"task": task, "version": selectors.newest_version(task)})


@require_safe
@page()
def task_detail(request: PageRequest, slug: str) -> HttpResponse:
    """Instruction, files, controls and rollouts; the gold patch and the hidden cases for operators only."""
    task = selectors.get_task(slug)
    version = selectors.newest_version(task)
    spec = version.bundle
    files = environment_files(spec)
    pages = Paginator(sorted(files.items()), FILES_PER_PAGE)
    file_page = pages.get_page(request.GET.get("files"))
    table = RolloutTable(
        rollouts.rollout_rows().filter(group__task_version__task=task), exclude=("select", "task", "match")
    )
    RequestConfig(request, paginate={"per_page": 20}).configure(table)
    secrets = request.user.may("operator")
    context = {
        "task": task,
        "version": version,
        "spec": spec,
        "table": table,
        "suites": version.suites.all(),
        "versions": task.versions.count(),
        "may_review": request.user.may("reviewer"),
        "opinions": reviewing.opinions(version) if reviewing.sees_opinions(version, request.user) else None,
        "files": [(name, *clip(text, MAX_FILE)) for name, text in file_page.object_list],
        "file_page": file_page,
        "gold": diff_view(gold_diff(spec)) if secrets else None,
        "secrets": secrets,
        "case_count": _case_count(spec),
        "from_environment": isinstance(spec.environment, BuiltEnvironment),
    }
    return show(request, "tasks/detail.html", context)


@require_POST
@page("reviewer")
def task_controls(request: PageRequest) -> HttpResponse:
    """Run the controls of the newest version of each ticked task again."""
    wanted = row_ids(request.POST.getlist("task"))
    versions = list(
        selectors.task_versions().filter(pk__in=Task.objects.filter(pk__in=wanted).values("newest_version"))
    )
    return act(
        request,
        lambda: services.request_task_controls(versions=versions, actor=request.user),
        done=f"Validation of {len(versions)} task{'s' * (len(versions) != 1)} is queued on the build workers.",
        to="tasks:list",
    )


@require_safe
@page()
def suite_list(request: PageRequest) -> HttpResponse:
    return suites_page(request, given={"purpose": "benchmark", "reviewed": "1"})


def suites_page(request: PageRequest, *, given: Mapping[str, str], problem: str = "") -> HttpResponse:
    """The suites, and the form for another one with what is `given` for it."""
    table = SuiteTable(selectors.suites())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "tasks/suites.html"
    may_review = request.user.may("reviewer")
    context = {"table": table, "tab": "suites", "live": "suites", "may_review": may_review, "previews": True}
    form = {"purposes": Split.choices, "given": given, "problem": problem}
    return show(request, template, context | form, status=422 if problem else 200)


@require_safe
@page()
def suite_preview(request: PageRequest, name: str) -> HttpResponse:
    """What the list shows beside its rows."""
    suite = selectors.get_suite(name)
    scores = evals.evaluations().filter(suite=suite, state="finished").order_by("-pk")[:PREVIEWED]
    return show(request, "tasks/_suite_preview.html", {"suite": suite, "scores": scores})


@require_safe
@page()
def suite_detail(request: PageRequest, name: str) -> HttpResponse:
    suite = selectors.get_suite(name)
    if request.GET.get("part") == "figures":
        return show(request, "tasks/_suite_figures.html", {"suite": suite})
    table = MemberTable(selectors.members(suite))
    table.known_count = suite.task_count
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "tasks/suite.html"
    return show(
        request,
        template,
        {
            "suite": suite,
            "table": table,
            "tab": "suites",
            "live": f"suite:{suite.pk}",
            "path": steps(suite, request.user),
            "difficulty": of_suite(suite),
            "may_review": request.user.may("reviewer"),
        },
    )


@require_POST
@page("reviewer")
def suite_controls(request: PageRequest, name: str) -> HttpResponse:
    suite = selectors.get_suite(name)
    done = "Validation of every task without a result is queued on the build workers."
    return act(
        request,
        lambda: services.request_suite_controls(suite=suite, actor=request.user),
        done=done,
        to="tasks:suite",
        name=name,
    )


def _case_count(spec: TaskSpec) -> int:
    verifier = spec.verifier
    return len(verifier.cases) if verifier.kind == "calls" else len(verifier.fail_to_pass) + len(verifier.pass_to_pass)
