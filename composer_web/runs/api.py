"""Runs over HTTP."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import FiniteFloat

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.ops.errors import UserError
from composer_web.runs import axes, metrics, rewards, selectors, services
from composer_web.runs.axes import Axis
from composer_web.runs.filters import RunFilter
from composer_web.runs.presets import PRESETS
from composer_web.runs.schemas import BucketOut, Checked, EventOut, MetricsOut, PresetOut, RunDetail, RunOut
from trainer.config import RewardConfig, RunConfig

router = Router()
MAX_SERIES = 40

Action = Literal["start", "pause", "resume", "stop"]
ACTIONS = {
    "start": services.start_run,
    "pause": services.pause_run,
    "resume": services.resume_run,
    "stop": services.cancel_run,
}


@router.get("", response=Page[RunOut], summary="List runs")
def list_runs(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    q: str = "",
    state: str = "",
    kind: str = "",
    policy: str = "",
) -> Any:
    """Newest first; the filters are those of the runs page."""
    return page(filtered(RunFilter, request, selectors.runs()), limit=limit, before=before)


@router.post("", response={201: RunDetail, 422: ErrorOut}, auth=needs("operate"), summary="Create a draft")
def create_run(request: HttpRequest, config: RunConfig, start: bool = False) -> Any:
    """With `start=true` it is queued at once."""
    run = services.create_run(config=config, actor=caller(request))
    if start:
        services.start_run(run=run, actor=caller(request))
    return Status(201, selectors.get_run(run.pk))


@router.post(
    "/validate", response={200: Checked, 422: ErrorOut}, summary="Check a configuration without creating a run"
)
def validate(request: HttpRequest, config: RunConfig) -> Any:
    return {"ok": True, "warnings": services.check_config(config), "config": config.model_dump(mode="json")}


@router.get("/presets", response=list[PresetOut], summary="Configurations to start from")
def presets(request: HttpRequest) -> Any:
    return [
        {"key": p.key, "title": p.title, "description": p.description, "config": p.config.model_dump(mode="json")}
        for p in PRESETS
    ]


@router.get("/{run_id}", response={200: RunDetail, 404: ErrorOut}, summary="One run with its configuration and history")
def get_run(request: HttpRequest, run_id: int) -> Any:
    return selectors.get_run(run_id)


@router.get("/{run_id}/metrics", response={200: MetricsOut, 404: ErrorOut}, summary="Metrics as min/max/last buckets")
def get_metrics(
    request: HttpRequest,
    run_id: int,
    name: list[str] = Query(default=[]),
    buckets: int = Query(500, ge=1, le=2000),
    axis: Axis = Axis.STEP,
    first: FiniteFloat | None = None,
    last: FiniteFloat | None = None,
    after: int | None = None,
) -> Any:
    """Without `name` only the names. `first`/`last` zoom on the axis; `after` gives what is new since a step (axis step)."""
    if len(name) > MAX_SERIES:
        raise UserError("name", f"at most {MAX_SERIES} series a request, not {len(name)}")
    run = selectors.get_run(run_id)
    if after is not None:
        if axis != Axis.STEP:
            raise UserError("after", f"after counts steps; leave it out, or ask for axis=step instead of {axis}")
        first = max(after + 1, first or 0)
    found = {n: axes.buckets(run, n, axis=axis, count=buckets, first=first, last=last) for n in name}
    return {
        "state": run.state,
        "step": run.step,
        "updated_at": metrics.last_update(run),
        "names": metrics.names(run),
        "series": {n: [BucketOut.from_orm(b) for b in rows] for n, rows in found.items()},
    }


@router.get("/{run_id}/events", response={200: list[EventOut], 404: ErrorOut}, summary="The run's log, newest first")
def get_events(request: HttpRequest, run_id: int, after: int = 0, limit: int = Query(100, ge=1, le=MAX_PAGE)) -> Any:
    return list(selectors.events(selectors.get_run(run_id), after=after)[:limit])


@router.get(
    "/{run_id}/reward", response={200: RewardConfig, 404: ErrorOut, 422: ErrorOut}, summary="The reward in force"
)
def get_reward(request: HttpRequest, run_id: int) -> Any:
    return rewards.in_force(selectors.get_run(run_id))


@router.put(
    "/{run_id}/reward",
    response={200: EventOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Change the reward of a live run",
)
def change_reward(request: HttpRequest, run_id: int, reward: RewardConfig) -> Any:
    """Groups that start from now on are scored by it; settings that are left out take their defaults."""
    return rewards.change(run=selectors.get_run(run_id), reward=reward, actor=caller(request))


# After the other paths below a run: its second part would match theirs.
@router.post(
    "/{run_id}/{action}",
    response={200: RunDetail, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Start, pause, resume or stop",
)
def act(request: HttpRequest, run_id: int, action: Action) -> Any:
    run = selectors.get_run(run_id)
    ACTIONS[action](run=run, actor=caller(request))
    return selectors.get_run(run_id)
