"""Suites generated from locked packages and installed repositories, with the attempts and costs of each run."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Literal

from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import Project, Role, User
from composer_web.accounts.scoping import project_now
from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.core.network import safe_http
from composer_web.core.queue.leases import LeaseLost
from composer_web.core.queue.outbox import enqueue
from composer_web.policies import endpoints
from composer_web.policies.models import Policy
from composer_web.repositories import installing, places, tokens
from composer_web.repositories import services as repositories
from composer_web.repositories.building import describe, locked_packages
from composer_web.repositories.models import Environment
from composer_web.tasks import generation_jobs
from composer_web.tasks.models import GenerationJob, GeneratorRun, Suite
from composer_web.tasks.overlap import drop_duplicates, store
from composer_web.tasks.services import build_suite
from sandbox.backends.base import Backend, SandboxError
from sandbox.errors import TaskError
from sandbox.generators.building.builder import Rewrite
from sandbox.generators.building.instructions import Style
from sandbox.generators.building.rewriting import Rewriter
from sandbox.generators.building.yields import Yield
from sandbox.generators.registry import GeneratorName, generate_tasks
from sandbox.packages.build import BuiltPackage, build_package_environments, with_backend
from sandbox.repositories import git
from sandbox.repositories.commits import Commit, commits
from sandbox.tasks.spec import TaskSpec

REPORT_SECONDS = 2.0
STOP_SECONDS = 0.5
Report = Callable[[Sequence[TaskSpec], Sequence[Yield]], bool]
"""Takes the tasks so far and what the generators tried; False stops them."""


class Stopped(Exception):
    """Somebody stopped the generation."""


class Wanted(BaseModel):
    """A suite of generated tasks that somebody asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,79}$")
    purpose: Literal["train", "held-out", "benchmark"] = "train"
    packages: tuple[str, ...] = Field(min_length=1)
    generators: tuple[GeneratorName, ...] = ("mutation",)
    styles: tuple[Style, ...] = ("precise",)
    count: int = Field(default=4, ge=1, le=500, description="Tasks per generator and package")
    seed: int = Field(default=0, ge=0)
    rewriter: str = Field(
        default="", max_length=100, description="Policy behind an endpoint that says the instructions in other words"
    )

    @property
    def requested(self) -> int:
        """Most tasks that it gives."""
        return self.count * len(self.generators) * len(self.packages)


def request_suite(wanted: Wanted, *, actor: User | None = None) -> GenerationJob:
    """Send the order to the build workers. Raises UserError for packages that are not there, or have no history to mine."""
    _check(wanted)
    with transaction.atomic():
        job = generation_jobs.create(
            name=wanted.name,
            generators=wanted.generators,
            packages=wanted.packages,
            requested=wanted.requested,
            actor=actor,
        )
        message = {"wanted": wanted.model_dump(mode="json"), "project": project_now(), "job": job.pk}
        enqueue("tasks.generate", message, queue="build", key=f"generate:{job.pk}")
    return job


def sources() -> dict[str, Environment | None]:
    """What tasks can be made from, by name: installed repositories, and locked packages (None)."""
    found: dict[str, Environment | None] = dict.fromkeys(locked_packages())
    return found | {one.name: one for one in installed_environments()}


def installed_environments() -> QuerySet[Environment]:
    """Ready environments that an auto-install made, whose tests are pytest's."""
    ready = Environment.objects.filter(state="ready", repository__isnull=False, detail__language="python")
    return ready.select_related("repository").order_by("name")


def _check(wanted: Wanted) -> dict[str, Environment | None]:
    known = sources()
    if unknown := set(wanted.packages) - known.keys():
        raise UserError(
            "packages",
            f"neither pinned in packages.lock nor an installed Python repository: {', '.join(sorted(unknown))}",
        )
    if "mining" in wanted.generators:
        for name in wanted.packages:
            if not _has_history(known[name]):
                raise UserError("generators", f"mining needs a git repository, which {name} was not made from")
    if wanted.rewriter:
        endpoints.get(wanted.rewriter)
    return {name: known[name] for name in wanted.packages}


def built_package(name: str, environment: Environment | None) -> BuiltPackage:
    if environment is not None:
        return installing.built_package(environment)
    (package,) = build_package_environments(store(), [name])
    source = f"{package.name}=={package.version}"
    repositories.register_ready(
        name=package.name, source=source, digest=package.environment.digest, detail=describe(package)
    )
    return package


def _has_history(environment: Environment | None) -> bool:
    repository = environment.repository if environment is not None else None
    return repository is not None and repository.kind in ("git", "path")


def _history(environment: Environment | None) -> tuple[Commit, ...]:
    """The commits up to the one that the environment was made from."""
    if not _has_history(environment):
        return ()
    assert environment is not None and environment.repository is not None
    repository = environment.repository
    if "://" in repository.location:
        guard = safe_http.repositories()
    else:
        git.check_path(repository.location, roots=places.git_roots())
        guard = None
    token = tokens.decrypt(repository.token)
    return commits(repository.location, revision=repository.pin, token=token, guard=guard)


def rewriters() -> list[str]:
    """Names of the policies behind endpoints."""
    return list(Policy.objects.filter(kind="endpoint").order_by("name").values_list("name", flat=True))


def _rewriter(name: str) -> Rewriter | None:
    if not name:
        return None
    asked = endpoints.asked(endpoints.get(name))
    key = asked.key.get_secret_value() if asked.key else ""
    return Rewriter(asked.url, asked.model, key=key, guard=asked.guard, cache=store().root / "rewritings")


def carry_out(wanted: Wanted, *, project: int, job: int) -> None:
    """Make a requested suite on a build worker, and record its progress and its end.

    The suite, its tasks and what was tried belong to the project that the job was created in. A job that has ended is
    left alone. Raises LeaseLost where another worker carries it out by now; then nothing is kept.
    """
    libraries = Project.objects.filter(library=True, archived_at=None).values_list("pk", flat=True)
    with acting(Access(0, Role.REVIEWER, project, project, tuple(libraries))):
        if generation_jobs.start(job):
            _carry_out(wanted, job)


def _carry_out(wanted: Wanted, job: int) -> None:
    """The suite and the end of the job are one transaction: a worker that dies before it leaves nothing behind."""
    nothing = "the generators tried, and kept nothing: see their reasons below"

    def report(specs: Sequence[TaskSpec], yields: Sequence[Yield]) -> bool:
        current = f"{yields[-1].generator} · {yields[-1].package}" if yields else ""
        tried = sum(found.tried for found in yields)
        return generation_jobs.progress(job, kept=len(specs), tried=tried, current=current)

    try:
        specs, yields = _made(wanted, report)
        with transaction.atomic():
            suite = _kept(wanted, specs, yields)
            tasks = suite.memberships.count() if suite else 0
            generation_jobs.finish(job, tasks=tasks, why="" if suite else nothing)
    except Stopped:
        return
    except (UserError, TaskError, SandboxError, ArtifactError, OSError) as error:
        generation_jobs.fail(job, why=str(error))
        raise
    except LeaseLost:
        raise
    except Exception as error:
        # A fault of ours. Nobody carries the job out again, so it must not stay one that runs.
        fault = f"{type(error).__name__}: {error}"
        generation_jobs.fail(
            job, why=f"the generator broke off ({fault[:500]}). The log of the build worker says where"
        )
        raise


def generate_suite(wanted: Wanted) -> Suite | None:
    """Make the tasks here and now; None when no generator gave one. Raises UserError, TaskError, SandboxError."""
    specs, yields = _made(wanted)
    with transaction.atomic():
        return _kept(wanted, specs, yields)


def _made(wanted: Wanted, report: Report | None = None) -> tuple[list[TaskSpec], list[Yield]]:
    chosen = _check(wanted)
    built = [built_package(name, environment) for name, environment in chosen.items()]
    mined = [_history(one) if "mining" in wanted.generators else () for one in chosen.values()]
    return generated(wanted, built, mined, rewrite=_rewriter(wanted.rewriter), report=report)


def _kept(wanted: Wanted, specs: list[TaskSpec], yields: Sequence[Yield]) -> Suite | None:
    for found in yields:
        save_yield(found)
    specs = drop_duplicates(specs)
    if not specs:
        return None
    recipe = {**wanted.model_dump(mode="json", exclude={"name"}), "generator": "+".join(wanted.generators)}
    text = f"Made by {', '.join(wanted.generators)} from {', '.join(wanted.packages)}"
    return build_suite(
        name=wanted.name, purpose=wanted.purpose, specs=specs, description=text, recipe=recipe, validate=True
    )


def generated(
    wanted: Wanted,
    built: Sequence[BuiltPackage],
    histories: Sequence[tuple[Commit, ...]],
    *,
    rewrite: Rewrite | None = None,
    report: Report | None = None,
) -> tuple[list[TaskSpec], list[Yield]]:
    """The tasks of every generator and package (each with its commits), and what each run tried.

    `report` is called every few seconds in the caller's thread, where the database may be used. Raises Stopped once it
    returns False.
    """
    split: Literal["train", "held-out"] = "train" if wanted.purpose == "train" else "held-out"
    specs: list[TaskSpec] = []
    yields: list[Yield] = []

    async def work(backend: Backend) -> None:
        for package, history in zip(built, histories, strict=True):
            for generator in wanted.generators:
                found = Yield(generator=generator, package=package.name)
                yields.append(found)
                async for task in generate_tasks(
                    store(), package, backend=backend, generator=generator, count=wanted.count, seed=wanted.seed,
                    split=split, styles=wanted.styles, rewrite=rewrite, found=found,
                    history=history if generator == "mining" else (),
                ):  # fmt: skip
                    specs.append(task)

    if report is None:
        with_backend(work)
    else:
        _watched(work, lambda: report(specs, yields))
    return specs, yields


def _watched(work: Callable[[Backend], Awaitable[None]], report: Callable[[], bool]) -> None:
    """Run `work` in a thread with an event loop of its own, and report from this one. Raises Stopped."""
    stopped = threading.Event()

    async def stoppable(backend: Backend) -> None:
        task = asyncio.ensure_future(work(backend))
        while not stopped.is_set() and not task.done():
            await asyncio.wait([task], timeout=STOP_SECONDS)
        task.cancel()
        await task

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(contextvars.copy_context().run, with_backend, stoppable)
        try:
            while not done.done():
                if not report():
                    raise Stopped
                wait([done], timeout=REPORT_SECONDS)
        except BaseException:
            stopped.set()  # the pool waits for its thread, so that no sandbox outlives the job
            raise
    report()
    done.result()


def save_yield(found: Yield) -> GeneratorRun:
    return GeneratorRun.objects.create(**found.model_dump())
