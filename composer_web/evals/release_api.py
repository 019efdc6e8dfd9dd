"""HTTP API of benchmark releases."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.evals import leaderboard, releases, selectors
from composer_web.evals.schemas import BoardOut, EvaluationOut, ReleaseIn, ReleaseOut, ReleaseRunIn
from composer_web.tasks.selectors import get_suite

router = Router()


@router.get("", response=Page[ReleaseOut], summary="List benchmark releases")
def list_releases(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(leaderboard.releases(), limit=limit, before=before)


@router.post(
    "",
    response={201: ReleaseOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Publish the next release of a benchmark",
)
def publish(request: HttpRequest, payload: ReleaseIn) -> Any:
    made = releases.publish(
        benchmark=payload.benchmark,
        suite=get_suite(payload.suite),
        keep=payload.keep,
        unreviewed=payload.unreviewed,
        notes=payload.notes,
        actor=caller(request),
    )
    return Status(201, leaderboard.get_release(made.benchmark, made.number))


@router.get("/{benchmark}/{number}", response={200: ReleaseOut, 404: ErrorOut}, summary="One release")
def get_release(request: HttpRequest, benchmark: str, number: int) -> Any:
    return leaderboard.get_release(benchmark, number)


@router.get("/{benchmark}/{number}/standings", response={200: BoardOut, 404: ErrorOut}, summary="Leaderboard and flags")
def get_standings(request: HttpRequest, benchmark: str, number: int) -> Any:
    return leaderboard.board(leaderboard.get_release(benchmark, number))


@router.post(
    "/{benchmark}/{number}/evaluations",
    response={201: EvaluationOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Run a policy over a release",
)
def evaluate(request: HttpRequest, benchmark: str, number: int, payload: ReleaseRunIn) -> Any:
    evaluation = releases.run(
        release=leaderboard.get_release(benchmark, number),
        reference=payload.policy,
        samples=payload.samples,
        temperature=payload.temperature,
        effort=payload.effort,
        price_input=payload.price_input,
        price_output=payload.price_output,
        turns=payload.turns,
        context_tokens=payload.context_tokens,
        interrupt=payload.interrupt,
        grader=payload.grader,
        seed=payload.seed,
        actor=caller(request),
    )
    return Status(201, selectors.get_evaluation(evaluation.pk))


@router.post(
    "/{benchmark}/{number}/check",
    response={202: ReleaseOut, 404: ErrorOut},
    auth=needs("operate"),
    summary="Compare with the training suites again",
)
def check(request: HttpRequest, benchmark: str, number: int) -> Any:
    release = leaderboard.get_release(benchmark, number)
    releases.request_check(release=release, actor=caller(request))
    return Status(202, release)
