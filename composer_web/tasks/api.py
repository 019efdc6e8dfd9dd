"""Tasks and suites over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.accounts.models import Role
from composer_web.accounts.services import SCOPES
from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.tasks import selectors, services
from composer_web.tasks.filters import TaskFilter
from composer_web.tasks.schemas import MembersOut, Requested, SuiteIn, SuiteOut, TaskDetail, TaskOut, VersionOut

tasks = Router()
suites = Router()


@tasks.get("", response=Page[TaskOut], summary="List tasks")
def list_tasks(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    q: str = "",
    source: str = "",
    category: str = "",
    suite: str = "",
    controls: str = "",
    strength_max: float | None = None,
) -> Any:
    """Newest first; the filters are those of the tasks page."""
    return page(filtered(TaskFilter, request, selectors.tasks()), limit=limit, before=before)


@tasks.get("/{slug}", response={200: TaskDetail, 404: ErrorOut}, summary="One task with its versions")
def get_task(request: HttpRequest, slug: str) -> Any:
    """The bundle (hidden tests and oracle) is given to reviewers and above only."""
    task = selectors.get_task(slug)
    versions = list(task.versions.order_by("-number"))
    newest = versions[0]
    reviewer = caller(request).may(SCOPES["review"])
    assert SCOPES["review"] == Role.REVIEWER
    return {
        **TaskOut.from_orm(task).dict(),
        "versions": [VersionOut.from_orm(v) for v in versions],
        "instruction": newest.spec["instruction"],
        "spec": newest.spec if reviewer else None,
    }


@tasks.post(
    "/{slug}/controls",
    response={200: Requested, 404: ErrorOut},
    auth=needs("review"),
    summary="Run all controls of a task again",
)
def run_task_controls(request: HttpRequest, slug: str) -> Any:
    """Oracle, no-op, wrong patches, exploits and mutants of the newest version, on the build workers."""
    version = selectors.newest_version(selectors.get_task(slug))
    return {"requested": services.request_task_controls(versions=[version], actor=caller(request))}


@suites.get("", response=Page[SuiteOut], summary="List suites")
def list_suites(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(selectors.suites(), limit=limit, before=before)


@suites.post(
    "",
    response={201: SuiteOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    summary="Create a suite from bundles",
)
def create_suite(request: HttpRequest, payload: SuiteIn) -> Any:
    suite = services.build_suite(
        name=payload.name,
        purpose=payload.purpose,
        specs=payload.tasks,
        description=payload.description,
        recipe={"source": "api"},
        validate=True,
        actor=caller(request),
    )
    return Status(201, selectors.get_suite(suite.pk))


@suites.get("/{name}", response={200: SuiteOut, 404: ErrorOut}, summary="One suite")
def get_suite(request: HttpRequest, name: str) -> Any:
    return selectors.get_suite(name)


@suites.get("/{name}/tasks", response={200: MembersOut, 404: ErrorOut}, summary="Tasks of a suite in order")
def get_members(request: HttpRequest, name: str, limit: int = Query(100, ge=1, le=MAX_PAGE), after: int = -1) -> Any:
    rows = list(selectors.members(selectors.get_suite(name)).filter(position__gt=after)[: limit + 1])
    return {"items": rows[:limit], "next": rows[limit - 1].position if len(rows) > limit else None}


@suites.post(
    "/{name}/validate",
    response={200: Requested, 404: ErrorOut},
    auth=needs("review"),
    summary="Run the missing controls",
)
def validate_suite(request: HttpRequest, name: str) -> Any:
    return {"requested": services.request_suite_controls(suite=selectors.get_suite(name), actor=caller(request))}
