"""HTTP API of annotations."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.core.errors import UserError
from composer_web.review import annotated as selectors
from composer_web.review import annotating as services
from composer_web.review.http.filters import AnnotationFilter
from composer_web.review.http.schemas import AnnotationIn, AnnotationOut
from composer_web.rollouts.selectors import get_rollout

router = Router()
REFUSED: dict[int, Any] = {404: ErrorOut, 409: ErrorOut, 422: ErrorOut}


@router.get("", response=Page[AnnotationOut], summary="List annotations of rollouts")
def list_annotations(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    rollout: int | None = None,
    run: str = Query("", description="Number or name"),
    kind: str = Query("", description="verdict, tag, comment, needs_review or assignee"),
    value: str = Query("", description="The verdict or the tag"),
    author: str = "",
    assignee: str = "",
    text: str = Query("", description="Part of a comment"),
) -> Any:
    """Newest first, without removed ones; the filters are those of the annotations page."""
    return page(filtered(AnnotationFilter, request, selectors.present()), limit=limit, before=before)


@router.post("", response={201: AnnotationOut, **REFUSED}, auth=needs("review"), summary="Annotate a rollout")
def create_annotation(request: HttpRequest, payload: AnnotationIn) -> Any:
    """A new verdict of yours and a new assignee replace the one before."""
    if (payload.token_start is None) != (payload.token_end is None):
        raise UserError("token_end", "a token range has both token_start and token_end, or neither")
    tokens = None if payload.token_start is None else (payload.token_start, payload.token_end or 0)
    made = services.annotate(
        rollout=get_rollout(payload.rollout),
        kind=payload.kind,
        value=payload.value,
        text=payload.text,
        turn=payload.turn,
        tokens=tokens,
        assignee=payload.assignee,
        actor=caller(request),
    )
    return Status(201, selectors.get(made.pk))


@router.delete(
    "/{annotation_id}",
    response={204: None, 403: ErrorOut, 404: ErrorOut},
    auth=needs("review"),
    summary="Remove an annotation",
)
def delete_annotation(request: HttpRequest, annotation_id: int) -> Any:
    services.remove(annotation=selectors.get(annotation_id), actor=caller(request))
    return Status(204, None)
