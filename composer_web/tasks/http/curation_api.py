"""HTTP API of curation: facets, reviews, instructions, bulk changes, undo, history, version comparison."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.accounts.models import User
from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.core.errors import NotFound, UserError
from composer_web.tasks import reviewing, selectors
from composer_web.tasks.curation import bulk, comparing
from composer_web.tasks.curation import services as curation
from composer_web.tasks.curation.facets import facets
from composer_web.tasks.curation.filters import TaskFilter
from composer_web.tasks.http.curation_schemas import (
    BatchOut,
    BulkIn,
    DiffPartOut,
    DisagreementOut,
    FacetOut,
    InstructionIn,
    MadeOut,
    NextOut,
    OpenSuiteIn,
    ReviewIn,
    ReviewsOut,
    TaskChangeOut,
)
from composer_web.tasks.http.schemas import SuiteOut, TaskFilters
from composer_web.tasks.models import Task, TaskVersion

router = Router()


def _newest(slug: str) -> tuple[Task, TaskVersion]:
    task = selectors.get_task(slug)
    return task, selectors.newest_version(task)


def reviews_of(slug: str, user: User) -> dict[str, Any]:
    """What this person may know of the reviews of a task."""
    task, version = _newest(slug)
    mine = reviewing.opinion(version, user)
    sees = reviewing.sees_opinions(version, user)
    return {
        "task": slug,
        "version": version.number,
        "state": task.review,
        "mine": mine.decision if mine else "",
        "opinions": reviewing.opinions(version) if sees else None,
    }


@router.get("/facets", response=list[FacetOut], summary="Tasks of each kind under the filters of the list")
def list_facets(request: HttpRequest, filters: Query[TaskFilters]) -> Any:
    """Takes the filters of `GET /tasks`; each facet counts under all others."""
    filtered(TaskFilter, request, selectors.tasks())  # refuses wrong and unknown filters
    return facets(request)


@router.get("/next", response=NextOut, auth=needs("review"), summary="The next task that waits for your review")
def get_next(request: HttpRequest, filters: Query[TaskFilters]) -> Any:
    """Takes the filters of `GET /tasks`."""
    query, user = filtered(TaskFilter, request, selectors.tasks()), caller(request)
    task = reviewing.following(query, user, None)
    return {
        "task": task.slug if task else None,
        "waiting": reviewing.waiting(query, user).values("pk")[:1001].count(),
    }


@router.get("/tasks/{slug}/reviews", response={200: ReviewsOut, 404: ErrorOut}, summary="Reviews of the newest version")
def get_reviews(request: HttpRequest, slug: str) -> Any:
    return reviews_of(slug, caller(request))


@router.post(
    "/tasks/{slug}/reviews",
    response={200: ReviewsOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    summary="Accept, reject or withdraw",
)
def review(request: HttpRequest, slug: str, payload: ReviewIn) -> Any:
    task, version = _newest(slug)
    if payload.version not in (None, version.number):
        raise UserError("version", f"the newest version of {slug} is {version.number}, not {payload.version}")
    actor = caller(request)
    curation.decide(
        task=task, version=version, decision=payload.decision, actor=actor, note=payload.note, into=payload.into
    )
    return reviews_of(slug, actor)


@router.post(
    "/tasks/{slug}/instruction",
    response={201: MadeOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    summary="The next version, with other words",
)
def edit_instruction(request: HttpRequest, slug: str, payload: InstructionIn) -> Any:
    made = curation.edit_instruction(task=selectors.get_task(slug), text=payload.instruction, actor=caller(request))
    return Status(201, {"task": slug, "version": made.number})


@router.get(
    "/tasks/{slug}/compare",
    response={200: list[DiffPartOut], 404: ErrorOut},
    summary="What differs between two versions",
)
def compare_versions(request: HttpRequest, slug: str, before: int, after: int) -> Any:
    """Hidden tests and gold patch are given to reviewers and above only."""
    task = selectors.get_task(slug)
    versions = {v.number: v for v in task.versions.filter(number__in=[before, after])}
    if not {before, after} <= versions.keys():
        raise NotFound(f"pair of versions of task {slug}", f"{before} and {after}")
    secrets = caller(request).may("reviewer")
    parts = comparing.compare(versions[before], versions[after])
    return [{"name": part.name, "diff": part.diff} for part in parts if secrets or not part.secret]


@router.post(
    "/bulk",
    response={200: BatchOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="One change of many tasks",
)
def change_tasks(request: HttpRequest, payload: BulkIn) -> Any:
    """All of them or none."""
    return bulk.change(
        tasks=curation.named(payload.tasks), action=payload.action, value=payload.value, actor=caller(request)
    )


@router.post(
    "/undo/{batch}",
    response={200: BatchOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    summary="Undo a batch of changes",
)
def undo(request: HttpRequest, batch: uuid.UUID) -> Any:
    """Reviewers undo their own changes, operators anybody's."""
    curation.require_may_undo(batch=batch, actor=caller(request))
    return curation.undo(batch=batch, actor=caller(request))


@router.get("/changes", response={200: Page[TaskChangeOut], 404: ErrorOut}, summary="History of changes")
def list_changes(
    request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None, task: str = ""
) -> Any:
    return page(selectors.changes(selectors.get_task(task) if task else None), limit=limit, before=before)


@router.get("/disagreements", response=list[DisagreementOut], summary="Tasks whose reviewers do not agree")
def list_disagreements(request: HttpRequest) -> Any:
    return [
        {
            "task": row.task.slug,
            "version": row.version.number,
            "reviews": row.reviews,
            "hidden": row.hidden,
            "opinions": list(row.opinions),
        }
        for row in reviewing.disagreements(caller(request))
    ]


@router.post(
    "/suites",
    response={201: SuiteOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    summary="An empty suite to curate into",
)
def open_suite(request: HttpRequest, payload: OpenSuiteIn) -> Any:
    suite = curation.open_suite(**payload.dict(), actor=caller(request))
    return Status(201, selectors.get_suite(suite.pk))
