"""HTTP API of review queues and drafts."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.core.errors import NotFound
from composer_web.review import blind, excluding, selectors, services, task_drafts
from composer_web.review.filling import found_by
from composer_web.review.http.schemas import (
    AgreementOut,
    CountOut,
    DraftChangeIn,
    DraftIn,
    DraftOut,
    ExcludeIn,
    FillIn,
    LabelDisagreementOut,
    LabelIn,
    LabelOut,
    NextItemOut,
    QueueIn,
    QueueOut,
    RewardOut,
)
from composer_web.review.models import Queue, QueueItem
from composer_web.review.questions import Questionnaire
from composer_web.rollouts.selectors import get_rollout

queues = Router()
drafts = Router()
REFUSED: dict[int, Any] = {404: ErrorOut, 409: ErrorOut, 422: ErrorOut}


def item_of(queue: Queue, rollout: int) -> QueueItem:
    """Raises NotFound."""
    found = QueueItem.objects.filter(queue=queue, rollout=rollout).select_related("queue").first()
    if found is None:
        raise NotFound(f"rollout in queue {queue.name}", rollout)
    return found


@queues.get("", response=Page[QueueOut], summary="List review queues")
def list_queues(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(selectors.queues(), limit=limit, before=before)


@queues.post("", response={201: QueueOut, **REFUSED}, auth=needs("operate"), summary="Make a review queue")
def create_queue(request: HttpRequest, payload: QueueIn) -> Any:
    found = found_by(payload.filters)
    queue = services.create_queue(
        name=payload.name,
        title=payload.title,
        questionnaire=Questionnaire(questions=tuple(payload.questions)),
        reviewers=payload.reviewers,
        actor=caller(request),
    )
    services.fill(queue=queue, rollouts=found, limit=payload.limit, actor=caller(request))
    return Status(201, selectors.get_queue(queue.name))


@queues.get("/{name}", response={200: QueueOut, 404: ErrorOut}, summary="One review queue")
def get_queue(request: HttpRequest, name: str) -> Any:
    return selectors.get_queue(name)


@queues.post("/{name}/fill", response={200: CountOut, **REFUSED}, auth=needs("operate"), summary="Add rollouts")
def fill_queue(request: HttpRequest, name: str, payload: FillIn) -> Any:
    queue = selectors.get_queue(name)
    found = found_by(payload.filters)
    return {"count": services.fill(queue=queue, rollouts=found, limit=payload.limit, actor=caller(request))}


@queues.get(
    "/{name}/next", response={200: NextItemOut, 404: ErrorOut}, auth=needs("review"), summary="What waits for you"
)
def get_next(request: HttpRequest, name: str) -> Any:
    queue, user = selectors.get_queue(name), caller(request)
    item = selectors.following(queue, user, None)
    waiting = selectors.waiting(queue, user).count() if item else 0
    return {"rollout": item.rollout_id if item else None, "waiting": waiting}


@queues.post(
    "/{name}/labels", response={201: LabelOut, **REFUSED}, auth=needs("review"), summary="Answer about a rollout"
)
def label(request: HttpRequest, name: str, payload: LabelIn) -> Any:
    item = item_of(selectors.get_queue(name), payload.rollout)
    return Status(201, services.label(item=item, answers=payload.answers, actor=caller(request)))


@queues.get(
    "/{name}/labels/{rollout}", response={200: list[LabelOut] | None, 404: ErrorOut}, summary="Labels of a rollout"
)
def get_labels(request: HttpRequest, name: str, rollout: int) -> Any:
    """null while you may still label it and have not."""
    item = item_of(selectors.get_queue(name), rollout)
    return selectors.labels_of(item) if selectors.sees_labels(item, caller(request)) else None


@queues.get(
    "/{name}/agreement",
    response={200: list[AgreementOut], 404: ErrorOut},
    summary="Agreement beyond chance, by question",
)
def get_agreement(request: HttpRequest, name: str) -> Any:
    return selectors.agreements(selectors.get_queue(name))


@queues.get(
    "/{name}/disagreements",
    response={200: list[LabelDisagreementOut], 404: ErrorOut},
    summary="Rollouts that reviewers answer differently about",
)
def get_disagreements(request: HttpRequest, name: str) -> Any:
    return [
        {
            "rollout": row.item.rollout_id,
            "questions": list(row.questions),
            "hidden": row.hidden,
            "labels": list(row.labels),
        }
        for row in selectors.disagreements(selectors.get_queue(name), caller(request))
    ]


@queues.get(
    "/{name}/rewards", response={200: list[RewardOut], 404: ErrorOut, 422: ErrorOut}, summary="Labels as rewards"
)
def get_rewards(request: HttpRequest, name: str, question: str) -> Any:
    """A scale by its ends; the options of a choice from the last (0) to the first (1). Without rollouts that wait for you."""
    queue = selectors.get_queue(name)
    found, hidden = (
        selectors.rewards(queue, question),
        set(blind.items().filter(queue=queue).values_list("rollout", flat=True)),
    )
    return [{"rollout": rollout, "value": value} for rollout, value in found.items() if rollout not in hidden]


@queues.post(
    "/{name}/exclude",
    response={200: CountOut, **REFUSED},
    auth=needs("operate"),
    summary="Keep out of training what most reviewers labelled so",
)
def exclude(request: HttpRequest, name: str, payload: ExcludeIn) -> Any:
    """Raises a confirmed finding for each; dismissing it undoes it."""
    queue = selectors.get_queue(name)
    count = excluding.exclude(
        queue=queue, question=payload.question, value=payload.value, tasks=payload.tasks, actor=caller(request)
    )
    return {"count": count}


@queues.post(
    "/{name}/{action}", response={200: QueueOut, **REFUSED}, auth=needs("operate"), summary="Close or open a queue"
)
def set_closed(request: HttpRequest, name: str, action: Literal["close", "open"]) -> Any:
    services.set_closed(queue=selectors.get_queue(name), closed=action == "close", actor=caller(request))
    return selectors.get_queue(name)


# --- drafts -----------------------------------------------------------------------------------------------------


@drafts.get("", response=Page[DraftOut], summary="List drafts of tasks")
def list_drafts(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(selectors.drafts(), limit=limit, before=before)


@drafts.post(
    "",
    response={201: DraftOut, **REFUSED},
    auth=needs("review"),
    summary="Create a task draft from a turn of a rollout",
)
def create_draft(request: HttpRequest, payload: DraftIn) -> Any:
    """A build worker collects the files as they were then."""
    values = payload.dict(exclude={"rollout"})
    draft = task_drafts.create_draft(rollout=get_rollout(payload.rollout), actor=caller(request), **values)
    return Status(201, selectors.get_draft(draft.pk))


@drafts.get("/{draft_id}", response={200: DraftOut, 404: ErrorOut}, summary="One draft")
def get_draft(request: HttpRequest, draft_id: int) -> Any:
    return selectors.get_draft(draft_id)


@drafts.put("/{draft_id}", response={200: DraftOut, **REFUSED}, auth=needs("review"), summary="Change a draft")
def change_draft(request: HttpRequest, draft_id: int, payload: DraftChangeIn) -> Any:
    draft = task_drafts.change(draft=selectors.get_draft(draft_id), actor=caller(request), **payload.dict())
    return selectors.get_draft(draft.pk)


@drafts.post(
    "/{draft_id}/{action}", response={200: DraftOut, **REFUSED}, auth=needs("review"), summary="Publish or discard"
)
def end_draft(request: HttpRequest, draft_id: int, action: Literal["publish", "discard"]) -> Any:
    """A published draft is a task whose controls are asked for."""
    draft = selectors.get_draft(draft_id)
    if action == "publish":
        task_drafts.publish(draft=draft, actor=caller(request))
    else:
        task_drafts.discard(draft=draft, actor=caller(request))
    return selectors.get_draft(draft_id)
