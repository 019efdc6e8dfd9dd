"""HTTP API of tasks and suites."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest
from ninja import File, Query, Router, Status
from ninja.files import UploadedFile

from composer_web.accounts.models import Role
from composer_web.accounts.services import SCOPES
from composer_web.api.auth import caller, needs
from composer_web.api.downloads import download
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page, file_of
from composer_web.core.errors import NotFound
from composer_web.evals.results.prepass import prepass
from composer_web.rollouts.models import Rollout
from composer_web.tasks import generation_jobs, selectors, services
from composer_web.tasks.curation.filters import TaskFilter
from composer_web.tasks.difficulty import of_suite
from composer_web.tasks.exchange import importing, interchange
from composer_web.tasks.exchange.interchange import RolloutFormat, TaskFormat
from composer_web.tasks.generating import Wanted, request_suite
from composer_web.tasks.http.schemas import (
    DifficultyOut,
    GenerationJobOut,
    GenerationRequested,
    GeneratorRunOut,
    ImportedOut,
    MembersOut,
    PrepassIn,
    PrepassOut,
    Requested,
    RolloutExport,
    SuiteIn,
    SuiteOut,
    TaskDetail,
    TaskFilters,
    TaskOut,
    TrajectoryOut,
    VersionOut,
)

tasks = Router()
suites = Router()


@tasks.get("", response=Page[TaskOut], summary="List tasks")
def list_tasks(
    request: HttpRequest,
    filters: Query[TaskFilters],
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
) -> Any:
    """Newest first; the filters are those of the tasks page."""
    return page(filtered(TaskFilter, request, selectors.tasks()), limit=limit, before=before)


@tasks.get("/generators", response=Page[GeneratorRunOut], summary="What generators tried, kept and spent")
def list_generator_runs(
    request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None
) -> Any:
    return page(selectors.generator_runs(), limit=limit, before=before)


@tasks.post(
    "/generators", response={202: GenerationRequested, 422: ErrorOut}, auth=needs("review"), summary="Make a suite"
)
def generate(request: HttpRequest, payload: Wanted) -> Any:
    """Made on the build workers; its tasks appear as a suite of that name."""
    job = request_suite(payload, actor=caller(request))
    return Status(202, {"requested": payload.requested, "job": job.pk})


@tasks.get("/generation-jobs", response=list[GenerationJobOut], summary="Generation jobs, with progress and ETA")
def list_generation_jobs(request: HttpRequest) -> Any:
    """Those of the last two weeks, newest first, at most 20."""
    return generation_jobs.recent()


@tasks.get("/generators/orders", response=list[GenerationJobOut], deprecated=True, summary="Use /tasks/generation-jobs")
def list_orders(request: HttpRequest) -> Any:
    return generation_jobs.recent()


@tasks.get("/generation-jobs/{job_id}", response={200: GenerationJobOut, 404: ErrorOut}, summary="One generation job")
def get_generation_job(request: HttpRequest, job_id: int) -> Any:
    return generation_jobs.get(job_id)


@tasks.post(
    "/generation-jobs/{job_id}/stop",
    response={200: GenerationJobOut, 404: ErrorOut, 409: ErrorOut},
    auth=needs("review"),
    summary="Stop a generation job",
)
def stop_generation_job(request: HttpRequest, job_id: int) -> Any:
    """No suite is made of what it has so far."""
    return generation_jobs.stop(job_id, actor=caller(request))


@tasks.get(
    "/rollouts/{rollout_id}/export/{format}",
    response={200: RolloutExport, 404: ErrorOut, 422: ErrorOut},
    summary="A rollout in another project's format",
)
def export_rollout(request: HttpRequest, rollout_id: int, format: RolloutFormat) -> Any:
    rollout = Rollout.objects.select_related("group__run", "group__evaluation").filter(pk=rollout_id).first()
    if rollout is None:
        raise NotFound("rollout", rollout_id)
    document, losses = interchange.export_rollout(rollout, format)
    return {"document": document, "not_carried": losses}


@tasks.get(
    "/{slug}/export/{format}",
    response={200: Any, 404: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    openapi_extra=file_of("application/octet-stream"),
    summary="A task in another project's format",
)
def export_task(request: HttpRequest, slug: str, format: TaskFormat) -> Any:
    """A zip with a Harbor directory, or one row of SWE-bench's JSONL; it holds the hidden tests and the oracle."""
    task = selectors.get_task(slug)
    spec = task.versions.order_by("-number")[0].bundle
    data, losses = interchange.export_tasks([spec], format)
    return download(data, f"{slug}.{'zip' if format == 'harbor' else 'jsonl'}", losses)


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
    summary="Validate a task again",
)
def run_controls(request: HttpRequest, slug: str) -> Any:
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
    summary="Run missing validation",
)
def validate_suite(request: HttpRequest, name: str) -> Any:
    return {"requested": services.request_suite_controls(suite=selectors.get_suite(name), actor=caller(request))}


@suites.get("/{name}/difficulty", response={200: list[DifficultyOut], 404: ErrorOut}, summary="Pre-passes of a suite")
def get_difficulty(request: HttpRequest, name: str) -> Any:
    return of_suite(selectors.get_suite(name))


@suites.post(
    "/{name}/prepass",
    response={202: PrepassOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Measure how hard a suite is for a policy",
)
def start_prepass(request: HttpRequest, name: str, payload: PrepassIn) -> Any:
    """An evaluation over the suite; when it has finished, its figures are at `/difficulty` and in the sampler."""
    made = prepass(
        suite=selectors.get_suite(name), reference=payload.policy, samples=payload.samples, tasks=payload.tasks,
        seed=payload.seed, actor=caller(request),
    )  # fmt: skip
    return Status(202, {"evaluation": made.pk})


@suites.get(
    "/{name}/export/{format}",
    response={200: Any, 404: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    openapi_extra=file_of("application/octet-stream"),
    summary="A suite in another project's format",
)
def export_suite(request: HttpRequest, name: str, format: TaskFormat) -> Any:
    versions = selectors.get_suite(name).versions.order_by("memberships__position")
    data, losses = interchange.export_tasks([version.bundle for version in versions], format)
    return download(data, f"{name}.{'zip' if format == 'harbor' else 'jsonl'}", losses)


@suites.post(
    "/{name}/import",
    response={201: ImportedOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("review"),
    summary="A suite from a zip of Harbor directories or SWE-bench rows",
)
def import_suite(
    request: HttpRequest,
    name: str,
    file: UploadedFile = File(...),
    purpose: str = "benchmark",
    format: TaskFormat = "harbor",
    environment: str = "",
) -> Any:
    """All of them or none. Their controls are run on the build workers. SWE-bench's rows need a ready `environment`."""
    suite, losses = importing.import_suite(
        file.read(), name=name, format=format, environment=environment, purpose=purpose, told=file.name or "",
        actor=caller(request),
    )  # fmt: skip
    return Status(201, {"suite": suite.name, "tasks": suite.memberships.count(), "not_carried": losses})


@tasks.post(
    "/trajectories/import",
    response={201: TrajectoryOut, 422: ErrorOut},
    auth=needs("review"),
    summary="Keep a trajectory of another project",
)
def import_trajectory(request: HttpRequest, file: UploadedFile = File(...)) -> Any:
    """ATIF, OpenAI messages or mini-swe-agent, seen from the file."""
    name, losses = importing.keep_trajectory(file.read(), actor=caller(request))
    return Status(201, {"name": name, "not_carried": losses})


@tasks.get(
    "/trajectories/{name}/export/{format}",
    response={200: RolloutExport, 404: ErrorOut},
    summary="An imported trajectory in a format",
)
def export_trajectory(request: HttpRequest, name: str, format: RolloutFormat) -> Any:
    data, losses = importing.write_trajectory(importing.kept_trajectory(name), format)
    return {"document": json.loads(data), "not_carried": losses}
