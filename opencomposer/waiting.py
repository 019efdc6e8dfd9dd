"""Waiting for work on the server: runs, builds, evaluations, exports. Every wait has a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from opencomposer.client import PAGE, Client
from opencomposer.errors import Failed, WaitTimeout
from opencomposer.output import Output

T = TypeVar("T")

POLL = 1.0
"""Seconds between two looks."""
WAIT_SECONDS = 6 * 3600.0
"""Default of `--timeout`."""
EXPORT_SECONDS = 1800.0
"""A worker's deadline for one export, with time for its queue."""
RUN_ENDED = ("finished", "failed", "cancelled")


class Job(BaseModel):
    """The fields of a job that waiting reads: an environment, evaluation, draft, dataset, measurement or export."""

    model_config = ConfigDict(extra="allow")

    state: str
    failure: str = ""
    cause: str = ""
    doing: str = ""
    rows: int | None = None
    total: int | None = None
    groups_done: int | None = None
    groups_total: int | None = None


class Bucket(BaseModel):
    """The last point of a range of steps."""

    last: int
    value: float


class RunMetrics(BaseModel):
    """State and new metrics of a run."""

    state: str
    step: int
    series: dict[str, list[Bucket]]


def until(look: Callable[[], T], ended: Callable[[T], bool], *, timeout: float, what: str, poll: float = POLL) -> T:
    """Look until the work has ended. Raises WaitTimeout."""
    end = time.monotonic() + timeout
    while not ended(found := look()):
        if time.monotonic() > end:
            raise WaitTimeout(f"{what} has not ended after {timeout:.0f} s; it continues on the server")
        time.sleep(poll)
    return found


def wait(
    look: Callable[[], dict[str, Any]],
    *,
    what: str,
    ended: Collection[str],
    good: Collection[str],
    timeout: float,
    progress: Callable[[Job], None] = lambda job: None,
) -> dict[str, Any]:
    """The job in one of the states `ended`. Raises WaitTimeout, and Failed with the cause when the state is not `good`."""

    def step() -> tuple[Job, dict[str, Any]]:
        found = look()
        job = Job.model_validate(found)
        progress(job)
        return job, found

    job, found = until(step, lambda one: one[0].state in ended, timeout=timeout, what=what)
    if job.state not in good:
        raise Failed(f"{what} is {job.state}: {job.failure or job.cause or 'it was stopped'}")
    return found


def wait_evaluation(client: Client, pk: int, output: Output, *, timeout: float) -> dict[str, Any]:
    """The finished evaluation, with its progress as it changes."""
    told = -1

    def progress(job: Job) -> None:
        nonlocal told
        if job.groups_done is not None and job.groups_done != told:
            told = job.groups_done
            data = {"evaluation": pk, "state": job.state, "groups_done": told, "groups_total": job.groups_total}
            output.streamed(f"{job.state}: {told} of {job.groups_total} tasks", data)

    return wait(
        lambda: client.get("/evaluations/{evaluation_id}", evaluation_id=pk),
        what=f"evaluation {pk}",
        ended=("finished", "failed", "cancelled"),
        good=("finished",),
        timeout=timeout,
        progress=progress,
    )


def wait_export(client: Client, pk: int, *, timeout: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """The finished export; `tell` hears how far it is, as that changes."""
    told = ""

    def progress(job: Job) -> None:
        nonlocal told
        of = f" of {job.total}" if job.total is not None else ""
        words = f"export {pk} is {job.state}" + (f": {job.rows}{of} rows" if job.rows else "")
        if words != told:
            told = words
            tell(words)

    return wait(
        lambda: client.get("/exports/{export_id}", export_id=pk),
        what=f"export {pk}",
        ended=("done", "failed", "void"),
        good=("done",),
        timeout=timeout,
        progress=progress,
    )


def wait_build(client: Client, name: str, output: Output, *, timeout: float) -> dict[str, Any]:
    """The ready environment, with its build log as it is written."""
    seen = 0

    def progress(_: Job) -> None:
        nonlocal seen
        text = client.get("/environments/{name}/log", name=name)["text"]
        for line in text[seen:].splitlines():
            output.streamed(line, {"log": line})
        seen = len(text)

    return wait(
        lambda: client.get("/environments/{name}", name=name),
        what=f"the build of {name}",
        ended=("ready", "failed"),
        good=("ready",),
        timeout=timeout,
        progress=progress,
    )


def wait_controls(client: Client, name: str, *, timeout: float) -> dict[str, Any]:
    """The suite once all its controls have run."""
    return until(
        lambda: dict(client.get("/suites/{name}", name=name)),
        lambda one: one["valid_count"] + one["rejected_count"] >= one["task_count"],
        timeout=timeout,
        what=f"the controls of {name}",
    )


def wait_generation(client: Client, job: int, *, timeout: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The generated suite once its controls have run; `say` gets the progress. Raises Failed when there is no suite."""

    def look() -> dict[str, Any]:
        one: dict[str, Any] = client.get("/tasks/generation-jobs/{job_id}", job_id=job)
        eta = "" if one["eta_seconds"] is None else f", ETA {one['eta_seconds'] / 60:.0f} min"
        say(f"{one['state']} · {one['kept']} of {one['requested']} tasks, {one['tried']} drafts tried{eta}")
        return one

    made = until(
        look, lambda one: one["state"] not in ("queued", "running"), timeout=timeout, what=f"generation job {job}"
    )
    if made["state"] != "finished":
        raise Failed(f"{made['name']}: {made['why'] or made['state']}")
    return wait_controls(client, made["name"], timeout=timeout)


def follow_run(
    client: Client, pk: int, *, metrics: Sequence[str], timeout: float, poll: float = POLL
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is new about a run at each look, as words and as data, until it has ended. Raises WaitTimeout."""
    end = time.monotonic() + timeout
    step, event, state = -1, 0, ""
    while True:
        query = {"name": metrics, "after": step, "buckets": 2000}
        found = RunMetrics.model_validate(client.get("/runs/{run_id}/metrics", query, run_id=pk))
        fresh: dict[int, dict[str, float]] = {}
        for name, buckets in found.series.items():
            for bucket in buckets:
                fresh.setdefault(bucket.last, {})[name] = bucket.value
        for at, values in sorted(fresh.items()):
            step = max(step, at)
            words = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
            yield f"step {at}  {words}", {"step": at, "metrics": values}
        events = client.get("/runs/{run_id}/events", {"after": event, "limit": PAGE}, run_id=pk)
        for one in sorted(events, key=lambda one: one["id"]):
            event = one["id"]
            yield f"{one['level']}: {one['message']}", {"event": one}
        if found.state != state:
            state = found.state
            yield f"{state} at step {found.step}", {"state": state, "step": found.step}
        if state in RUN_ENDED:
            return
        if time.monotonic() > end:
            raise WaitTimeout(
                f"run {pk} is {state} at step {found.step} after {timeout:.0f} s; it continues on the server"
            )
        time.sleep(poll)
