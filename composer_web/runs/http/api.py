"""HTTP API of runs."""

from __future__ import annotations

from typing import Any, Literal

from django.db import transaction
from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import FiniteFloat

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.core.errors import UserError
from composer_web.evals import services as evals
from composer_web.evals.http.schemas import EvaluationOut
from composer_web.evals.selectors import get_evaluation
from composer_web.runs import labels, metrics, rewards, selectors, services
from composer_web.runs.charts import axes
from composer_web.runs.charts.axes import Axis
from composer_web.runs.deletion_models import FileKind
from composer_web.runs.detectors import insights
from composer_web.runs.files import services as stored
from composer_web.runs.http.file_schemas import FileDeletionOut, FilesOut
from composer_web.runs.http.filters import RunFilter
from composer_web.runs.http.schemas import (
    BucketOut,
    EventOut,
    InsightOut,
    Labels,
    MetricsOut,
    PresetOut,
    RunDetail,
    RunOut,
)
from composer_web.runs.launch import config_io, summary
from composer_web.runs.launch.launch_schemas import Checked, ParsedOut, TextIn, TextOut, WriteIn
from composer_web.runs.launch.presets import PRESETS
from trainer.config import RewardConfig, RunConfig

router = Router()
MAX_SERIES = 40

Action = Literal["start", "pause", "resume", "stop", "archive", "restore"]
ACTIONS = {
    "start": services.start_run,
    "pause": services.pause_run,
    "resume": services.resume_run,
    "stop": services.cancel_run,
    "archive": labels.archive_run,
    "restore": labels.restore_run,
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
    tag: str = "",
    by: str = "",
    sweep: str = "",
    pass1: str = "",
    reward: str = "",
    since: str = "",
    archived: str = "",
) -> Any:
    """Newest first; the filters are those of the runs page: `pass1` and `reward` are the least last value of the run,
    `since` the first day on which it was made. Archived runs only with `archived=only` or `all`."""
    return page(filtered(RunFilter, request, selectors.runs()), limit=limit, before=before)


@router.post(
    "",
    response={201: RunDetail, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Create a draft",
)
def create_run(
    request: HttpRequest,
    config: RunConfig,
    start: bool = False,
    parent: int | None = None,
    start_after: int | None = None,
) -> Any:
    """With `start=true` it is queued at once; `parent` is the run that its page tells it against. With `start_after` it
    starts once that run has finished, from the policy that it trains, whatever `policy` is configured."""
    before = selectors.get_run(parent) if parent is not None else None
    after = selectors.get_run(start_after) if start_after is not None else None
    run = services.create_run(config=config, actor=caller(request), parent=before, start_after=after)
    if start:
        services.start_run(run=run, actor=caller(request))
    return Status(201, selectors.get_run(run.pk))


@router.post(
    "/validate",
    response={200: Checked, 404: ErrorOut, 422: ErrorOut},
    summary="Dry run: check a configuration and say what it would run",
)
def validate(request: HttpRequest, config: RunConfig, parent: int | None = None) -> Any:
    """Makes nothing. `parent` is a run to be told the differences from."""
    before = selectors.get_run(parent) if parent is not None else None
    warnings = services.check_config(config)
    found = summary.summarise(config)
    differences = summary.against_parent(found.config, before)
    return {
        "ok": True,
        "warnings": warnings,
        "config": found.config.model_dump(mode="json"),
        "differences": [{"field": row.label, "parent": row.values[0], "value": row.values[1]} for row in differences],
        **summary.as_data(found),
    }


@router.post("/read", response={200: ParsedOut, 422: ErrorOut}, summary="A YAML, TOML or JSON text as a configuration")
def read_text(request: HttpRequest, payload: TextIn) -> Any:
    """Errors name the field and the line. Makes nothing."""
    return {"config": config_io.load(payload.text).model_dump(mode="json")}


@router.post("/write", response={200: TextOut, 422: ErrorOut}, summary="A configuration as YAML or TOML")
def write_text(request: HttpRequest, payload: WriteIn) -> Any:
    return {"text": config_io.render(payload.config, payload.format)}


@router.get("/presets", response=list[PresetOut], summary="Configurations to start from")
def presets(request: HttpRequest) -> Any:
    return [
        {"key": p.key, "title": p.title, "description": p.description, "config": p.config.model_dump(mode="json")}
        for p in PRESETS
    ]


@router.get("/{run_id}", response={200: RunDetail, 404: ErrorOut}, summary="One run with its configuration and history")
def get_run(request: HttpRequest, run_id: int) -> Any:
    return selectors.get_run(run_id)


@router.patch(
    "/{run_id}",
    response={200: RunDetail, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Tags and notes",
)
def label(request: HttpRequest, run_id: int, payload: Labels) -> Any:
    run = selectors.get_run(run_id)
    with transaction.atomic():
        if payload.tags is not None:
            labels.set_tags(run=run, tags=payload.tags, actor=caller(request))
        if payload.notes is not None:
            labels.set_notes(run=run, notes=payload.notes, actor=caller(request))
    return selectors.get_run(run_id)


@router.get("/{run_id}/config", response={200: TextOut, 404: ErrorOut}, summary="The configuration of a run as text")
def get_config(request: HttpRequest, run_id: int, format: config_io.Format = "yaml") -> Any:
    return {"text": config_io.render(selectors.get_run(run_id).configuration, format)}


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
    found = axes.buckets(run, name, axis=axis, count=buckets, first=first, last=last)
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
    "/{run_id}/insights",
    response={200: list[InsightOut], 404: ErrorOut},
    summary="What the detectors see in a run, with remedies",
)
def get_insights(request: HttpRequest, run_id: int) -> Any:
    """From the metrics of its first and last steps, its rollouts and findings; empty while all is well."""
    return [InsightOut.of(found) for found in insights.of_run(selectors.get_run(run_id))]


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


@router.post(
    "/{run_id}/probe",
    response={201: EvaluationOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Play three tasks as the run would",
)
def create_probe(request: HttpRequest, run_id: int) -> Any:
    """An evaluation under the run's conditions, whose results hold pass rate, stop reasons and tokens."""
    made = evals.probe(run=selectors.get_run(run_id), actor=caller(request))
    return Status(201, get_evaluation(made.pk))


@router.get(
    "/{run_id}/files",
    response={200: FilesOut, 404: ErrorOut, 422: ErrorOut},
    summary="What a run keeps on disk, and what a deletion would free",
)
def get_files(request: HttpRequest, run_id: int, final: bool = False, annotated: bool = False) -> Any:
    """Deletes nothing. The options are those of the deletion: also the newest checkpoint, also annotated trajectories."""
    run = selectors.get_run(run_id)
    return FilesOut.of(stored.plans(run, final=final, annotated=annotated), stored.deletions(run))


@router.delete(
    "/{run_id}/files",
    response={202: list[FileDeletionOut], 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Delete checkpoints, weight versions or trajectories of a run that has ended",
)
def delete_files(
    request: HttpRequest,
    run_id: int,
    kinds: list[FileKind] = Query(..., min_length=1),
    final: bool = False,
    annotated: bool = False,
) -> Any:
    """A worker deletes them; GET says how far it is. Rows, verdicts, metrics and labels stay. Trajectories that a dataset, a
    fork, a draft or a review needs are kept, and without the options the newest checkpoint and annotated trajectories."""
    run = selectors.get_run(run_id)
    made = stored.delete(run=run, kinds=kinds, final=final, annotated=annotated, actor=caller(request))
    return Status(202, made)


# After the other paths below a run: its second part would match theirs.
@router.post(
    "/{run_id}/{action}",
    response={200: RunDetail, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Start, pause, resume, stop, archive or restore",
)
def act(request: HttpRequest, run_id: int, action: Action) -> Any:
    run = selectors.get_run(run_id)
    ACTIONS[action](run=run, actor=caller(request))
    return selectors.get_run(run_id)
