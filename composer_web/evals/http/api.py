"""HTTP API of evaluations."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.downloads import download_file
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page, file_of
from composer_web.evals import selectors, services
from composer_web.evals.http.filters import EvaluationFilter
from composer_web.evals.http.schemas import ComparisonOut, EntryOut, EvaluationIn, EvaluationOut, GradeIn
from composer_web.evals.results import comparing
from composer_web.tasks.exchange import interchange
from composer_web.tasks.selectors import get_suite, get_task

router = Router()


@router.get("", response=Page[EvaluationOut], summary="List evaluations")
def list_evaluations(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    run: str = Query("", description="Number or name"),
    policy: str = "",
    suite: str = "",
    phase: str = "",
    state: str = "",
) -> Any:
    rows = filtered(EvaluationFilter, request, selectors.counted(selectors.evaluations()))
    return page(rows, limit=limit, before=before)


@router.post(
    "",
    response={201: EvaluationOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Evaluate a policy version",
)
def create_evaluation(request: HttpRequest, payload: EvaluationIn) -> Any:
    evaluation = services.evaluate(
        reference=payload.policy,
        suite=get_suite(payload.suite),
        tasks=payload.tasks,
        samples=payload.samples,
        temperature=payload.temperature,
        turns=payload.turns,
        context_tokens=payload.context_tokens,
        seed=payload.seed,
        actor=caller(request),
    )
    return Status(201, selectors.get_evaluation(evaluation.pk))


@router.get("/compare", response={200: ComparisonOut, 404: ErrorOut, 422: ErrorOut}, summary="Two, task by task")
def compare(request: HttpRequest, before: int, after: int) -> Any:
    return comparing.compare(selectors.get_evaluation(before), selectors.get_evaluation(after))


@router.get("/tasks/{slug}", response={200: list[EntryOut], 404: ErrorOut}, summary="A task in every evaluation")
def task_history(request: HttpRequest, slug: str) -> Any:
    return comparing.history(get_task(slug))


@router.post(
    "/{evaluation_id}/grade",
    response={202: EvaluationOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Score its side evaluations, again if need be",
)
def grade(request: HttpRequest, evaluation_id: int, payload: GradeIn) -> Any:
    evaluation = selectors.get_evaluation(evaluation_id)
    services.set_grader(evaluation=evaluation, grader=payload.grader, actor=caller(request))
    return Status(202, selectors.get_evaluation(evaluation_id))


@router.get("/{evaluation_id}", response={200: EvaluationOut, 404: ErrorOut}, summary="One evaluation")
def get_evaluation(request: HttpRequest, evaluation_id: int) -> Any:
    return selectors.get_evaluation(evaluation_id)


@router.get(
    "/{evaluation_id}/export/inspect",
    response={200: Any, 404: ErrorOut, 422: ErrorOut},
    openapi_extra=file_of("application/octet-stream"),
    summary="Its rollouts as a log of Inspect",
)
def export_log(request: HttpRequest, evaluation_id: int) -> Any:
    """For Inspect View and `inspect_ai.analysis`."""
    file, losses = interchange.export_log(selectors.get_evaluation(evaluation_id).pk)
    return download_file(file, f"evaluation-{evaluation_id}.eval", losses)


@router.post(
    "/{evaluation_id}/cancel",
    response={200: EvaluationOut, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Cancel",
)
def cancel(request: HttpRequest, evaluation_id: int) -> Any:
    services.cancel(evaluation=selectors.get_evaluation(evaluation_id), actor=caller(request))
    return selectors.get_evaluation(evaluation_id)
