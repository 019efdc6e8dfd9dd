"""Suites of a study: the procedural family, and bugs planted in real packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import TaskSpec
from scripts.study.errors import StudyError
from scripts.study.plan import Package
from scripts.study.requests import Answer, Job, Requests

Purpose = Literal["train", "held-out"]
FIRST_TASK: dict[str, int] = {"held-out": 30_000_000, "demonstrations": 31_000_000, "train": 32_000_000}
"""Seeds of procedural tasks by suite, away from those of the shipped suites and of SFT's own expert."""
TASKS_OF_A_SEED = 10_000


class Build(Job):
    name: str


class Generation(Job):
    id: int
    name: str
    requested: int
    kept: int
    tried: int
    current: str
    eta_seconds: float | None = None


class Suite(Answer):
    name: str
    task_count: int
    valid_count: int
    rejected_count: int


class Controls(Job):
    """A suite as something to wait for."""

    state: str = ""
    task_count: int
    valid_count: int
    rejected_count: int

    def model_post_init(self, _: Any) -> None:
        self.state = "checked" if self.valid_count + self.rejected_count >= self.task_count else "checking"


def environment(requests: Requests, package: Package) -> str:
    """Name of the package's environment, built unless it is ready. Packages of the product's lock need none of their own."""
    if not package.version:
        return package.name
    found = requests.found(Build, "/environments/{name}", name=package.name)
    if found is None:
        body = {"kind": "sdist", "location": package.name, "revision": package.version, "name": package.name}
        requests.client.post("/environments/repositories", body)
    elif found.state == "failed":
        requests.client.post("/environments/{name}/again", name=package.name)
    requests.wait(
        Build,
        "/environments/{name}",
        name=package.name,
        what=f"environment {package.name}",
        good=("ready",),
        bad=("failed",),
        tell=lambda build: f"{package.name} is {build.state}",
    )
    return package.name


def mutations(
    requests: Requests, *, name: str, purpose: Purpose, packages: Sequence[str], count: int, seed: int = 0
) -> Suite:
    """The suite of this name, generated and checked unless it is there."""
    job = _generation(requests, name)  # first: one that ends now leaves the suite
    if requests.found(Suite, "/suites/{name}", name=name) is None:
        if job is None:
            wanted = {"name": name, "purpose": purpose, "packages": list(packages), "generators": ["mutation"]}
            body = {**wanted, "count": count, "seed": seed}
            number = int(requests.client.post("/tasks/generators", body)["job"])
        else:
            number = job.id
        requests.wait(
            Generation,
            "/tasks/generation-jobs/{job_id}",
            job_id=number,
            what=f"suite {name}",
            good=("finished",),
            bad=("failed", "empty", "stopped"),
            tell=lambda one: f"{name}: {one.kept} of {one.requested} tasks, {one.tried} drafts tried, {one.current}",
        )
    return checked(requests, name)


def _generation(requests: Requests, name: str) -> Generation | None:
    """The job of that name that is under way."""
    jobs = [Generation.model_validate(one) for one in requests.client.get("/tasks/generation-jobs")]
    return next((job for job in jobs if job.name == name and job.state in ("queued", "running")), None)


def posted(requests: Requests, *, name: str, purpose: Purpose, tasks: Sequence[TaskSpec], description: str) -> Suite:
    """The suite of this name, made of these bundles unless it is there."""
    if requests.found(Suite, "/suites/{name}", name=name) is None:
        bundles = [task.model_dump(mode="json") for task in tasks]
        body = {"name": name, "purpose": purpose, "description": description, "tasks": bundles}
        requests.client.post("/suites", body)
    return checked(requests, name)


def checked(requests: Requests, name: str) -> Suite:
    """The suite once the controls of its tasks have run. Raises StudyError when no task passes them."""
    found = requests.wait(
        Controls,
        "/suites/{name}",
        name=name,
        what=f"controls of {name}",
        good=("checked",),
        bad=(),
        tell=lambda suite: (
            f"{name}: controls of {suite.valid_count + suite.rejected_count} of {suite.task_count} tasks"
        ),
    )
    if not found.valid_count:
        raise StudyError(
            name, "no task passes its controls", "Look at the suite's page, and generate it with another seed."
        )
    return Suite(name=name, **found.model_dump(include={"task_count", "valid_count", "rejected_count"}))


def procedural(suite: str, split: Purpose, count: int, seed: int) -> list[TaskSpec]:
    """Tasks of one suite and seed: no two suites or seeds of a study share any."""
    first = FIRST_TASK[suite] + seed * TASKS_OF_A_SEED
    return [generate(first + index, split) for index in range(count)]


def bundles(requests: Requests, name: str) -> list[TaskSpec]:
    """Bundles of a suite's tasks that pass their controls. The token must be a reviewer's."""
    found: list[TaskSpec] = []
    after = -1
    while True:
        page = requests.client.get("/suites/{name}/tasks", {"after": after, "limit": 100}, name=name)
        for item in page["items"]:
            if item["controls_ok"] is False:
                continue
            task = requests.client.get("/tasks/{slug}", slug=item["task"])
            if task["spec"] is None:
                raise StudyError("token", "the product shows it no bundles of tasks", "Give it the scope `review`.")
            found.append(TaskSpec.model_validate(task["spec"]))
        if page["next"] is None:
            return found
        after = page["next"]
