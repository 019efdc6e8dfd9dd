"""HTTP API of mid-training studies."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.studies import results, services
from composer_web.studies.http.schemas import StudyDetail, StudyOut
from composer_web.studies.schemas import StudyIn

router = Router()


@router.get("", response=Page[StudyOut], summary="List mid-training studies")
def list_studies(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(results.studies(), limit=limit, before=before)


@router.post(
    "",
    response={201: StudyOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Create and start all runs of a mid-training study",
)
def create_study(request: HttpRequest, payload: StudyIn) -> Any:
    """For each seed and level: mid-training, then SFT, then RL. All or none."""
    made = services.create_study(wanted=payload, actor=caller(request))
    return Status(201, results.get_study(made.pk))


@router.get(
    "/{study_id}",
    response={200: StudyDetail, 404: ErrorOut},
    summary="A mid-training study with its losses, rewards and their correlation",
)
def get_study(request: HttpRequest, study_id: int) -> Any:
    study = results.get_study(study_id)
    found = results.results(study)
    return {
        "study": study,
        "wanted": study.wanted,
        "chains": found.chains,
        "measured": found.measured,
        "points": len(found.points),
        "correlation": found.correlation,
        "correlation_within_seeds": found.within_seeds,
    }


@router.post(
    "/{study_id}/stop",
    response={200: StudyOut, 404: ErrorOut},
    auth=needs("operate"),
    summary="Cancel the runs of a study that have not ended",
)
def stop_study(request: HttpRequest, study_id: int) -> Any:
    services.stop_study(study=results.get_study(study_id), actor=caller(request))
    return results.get_study(study_id)
