"""HTTP API of groups and rollouts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.core.errors import NotFound
from composer_web.rollouts import selectors
from composer_web.rollouts.http.schemas import GroupDetail, GroupOut, RolloutOut, TrajectoryPage
from composer_web.rollouts.search.filters import RolloutFilter
from composer_web.rollouts.trajectory import trajectory_store

rollouts = Router()
groups = Router()

PATCH_CHARS = 200_000


@rollouts.get("", response=Page[RolloutOut], summary="List rollouts")
def list_rollouts(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    run: str = Query("", description="Number or name"),
    evaluation: int | None = None,
    task: str = "",
    verdict: str = Query("", description="passed, failed, infra_error, or open for none yet"),
    stop_reason: str = "",
    reward_min: float | None = None,
    reward_max: float | None = None,
    version: int | None = None,
    label: str = "",
    annotation: str = Query("", description="verdict=bad, tag=x, needs_review, assignee=me, comment, or none"),
    finding: str = Query("", description="any, none, or a rule; dismissed findings do not count"),
    quarantined: bool | None = None,
    tool_errors_min: int | None = None,
    tool_errors_max: int | None = None,
    turns_min: int | None = None,
    turns_max: int | None = None,
    tokens_min: int | None = Query(None, description="Tokens that the policy wrote"),
    tokens_max: int | None = None,
    step_min: int | None = Query(None, description="Optimiser step that trained on it"),
    step_max: int | None = None,
    text: str = "",
) -> Any:
    """Newest first; the filters are those of the rollouts page."""
    return page(filtered(RolloutFilter, request, selectors.rollouts()), limit=limit, before=before)


@rollouts.get("/{rollout_id}", response={200: RolloutOut, 404: ErrorOut}, summary="One rollout")
def get_rollout(request: HttpRequest, rollout_id: int) -> Any:
    return selectors.get_rollout(rollout_id)


@rollouts.get(
    "/{rollout_id}/trajectory",
    response={200: TrajectoryPage, 404: ErrorOut, 503: ErrorOut},
    summary="The recorded trajectory, by turns",
)
def get_trajectory(
    request: HttpRequest,
    rollout_id: int,
    offset: int = Query(0, ge=0),
    limit: int = Query(20, ge=1, le=MAX_PAGE),
    tokens: bool = False,
) -> Any:
    """Read by its copy, whose longest texts are cut: `missing` counts what only the download of the page has."""
    rollout = selectors.get_rollout(rollout_id)
    read = trajectory_store.of(rollout)
    t = read.head.trajectory
    if t is None:
        raise NotFound("recorded trajectory of rollout", f"{rollout_id} (it is {rollout.state})")
    turns = read.turns(range(offset, min(offset + limit, read.total)))
    shown = sorted({turn.segment for turn in turns})
    end = offset + len(turns)
    return {
        "rollout_id": rollout.pk,
        "task_id": t.task_id,
        "bundle_hash": t.bundle_hash,
        "messages": list(read.head.messages),
        "stop_reason": str(t.stop_reason),
        "report": t.report.model_dump(mode="json"),
        "reward": t.reward,
        "reward_parts": [part.model_dump(mode="json") for part in t.reward_parts],
        "seconds": t.seconds,
        "patch": t.patch[:PATCH_CHARS],
        "patch_skipped": list(t.patch_skipped),
        "turns_total": read.total,
        "turns": [turn.model_dump(mode="json") for turn in turns],
        "next": end if end < read.total else None,
        "missing": read.head.missing,
        "segments": [{"index": i, **read.segment(i).model_dump()} for i in shown] if tokens else [],
    }


@groups.get("", response=Page[GroupOut], summary="List groups")
def list_groups(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    run: int | None = None,
    evaluation: int | None = None,
    state: str = "",
) -> Any:
    query = selectors.groups()
    for name, value in (("run_id", run), ("evaluation_id", evaluation), ("state", state or None)):
        if value is not None:
            query = query.filter(**{name: value})
    return page(query, limit=limit, before=before)


@groups.get("/{group_id}", response={200: GroupDetail, 404: ErrorOut}, summary="All rollouts of one prompt")
def get_group(request: HttpRequest, group_id: int) -> Any:
    return selectors.get_group(group_id)
