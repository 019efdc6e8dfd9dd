"""Suites generated from locked packages and installed repositories, with the attempts and costs of each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import Project, Role, User
from composer_web.accounts.scoping import project_now
from composer_web.core import safe_http
from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.core.outbox import enqueue
from composer_web.policies import endpoints
from composer_web.policies.models import Policy
from composer_web.repositories import installing, places, tokens
from composer_web.repositories import services as repositories
from composer_web.repositories.building import describe, locked_packages
from composer_web.repositories.models import Environment
from composer_web.tasks import generation_jobs
from composer_web.tasks.models import GeneratorRun, Suite
from composer_web.tasks.overlap import drop_duplicates, store
from composer_web.tasks.services import build_suite
from sandbox.backends.base import Backend, SandboxError
from sandbox.install.sources import git
from sandbox.install.sources.history import Commit, commits
from sandbox.tasks.errors import TaskError
from sandbox.tasks.generators.instructions import Style
from sandbox.tasks.generators.making import Rewrite
from sandbox.tasks.generators.producing import GeneratorName, generate_tasks
from sandbox.tasks.generators.rewriting import Rewriter
from sandbox.tasks.generators.yields import Yield
from sandbox.tasks.packages import BuiltPackage, build_package_environments, with_backend
from sandbox.tasks.spec import TaskSpec


class Wanted(BaseModel):
    """An order for a suite of generated tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,79}$")
    purpose: Literal["train", "held-out", "benchmark"] = "train"
    packages: tuple[str, ...] = Field(min_length=1)
    generators: tuple[GeneratorName, ...] = ("mutation",)
    styles: tuple[Style, ...] = ("precise",)
    count: int = Field(default=4, ge=1, le=500, description="Tasks of each generator and package")
    seed: int = Field(default=0, ge=0)
    rewriter: str = Field(
        default="", max_length=100, description="Policy behind an endpoint that says the instructions in other words"
    )


def request_suite(wanted: Wanted, *, actor: User | None = None) -> None:
    """Send the order to the build workers. Raises UserError for packages that are not there, or have no history to mine."""
    _check(wanted)
    with transaction.atomic():
        order = generation_jobs.asked(name=wanted.name, generators=wanted.generators, actor=actor)
        message = {"wanted": wanted.model_dump(mode="json"), "project": project_now(), "order": order}
        enqueue("tasks.generate", message, queue="build", key=f"generate:{order}")


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


def _built(name: str, environment: Environment | None) -> BuiltPackage:
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


def carry_out(wanted: Wanted, *, project: int, order: int = 0) -> None:
    """Make an ordered suite on a build worker, and note what came of it: pages and API show nothing else of an order.

    The suite, its tasks and what was tried belong to the project that the order was placed in. An order that has ended is
    left alone. Raises LeaseLost where another worker carries it out by now; then nothing is kept.
    """
    if generation_jobs.has_ended(order):
        return
    libraries = Project.objects.filter(library=True, archived_at=None).values_list("pk", flat=True)
    with acting(Access(0, Role.REVIEWER, project, project, tuple(libraries))):
        _carry_out(wanted, order)


def _carry_out(wanted: Wanted, order: int) -> None:
    """The suite and the end of the order are one transaction: a worker that dies before it leaves nothing behind."""
    nothing = "the generators tried, and kept nothing: see their reasons below"
    try:
        specs, yields = _made(wanted)
        with transaction.atomic():
            suite = _kept(wanted, specs, yields)
            tasks = suite.memberships.count() if suite else 0
            generation_jobs.ended(name=wanted.name, tasks=tasks, why="" if suite else nothing, order=order)
    except (UserError, TaskError, SandboxError, ArtifactError, OSError) as error:
        generation_jobs.failed(name=wanted.name, why=str(error), order=order)
        raise


def generate_suite(wanted: Wanted) -> Suite | None:
    """Make the tasks here and now; None when no generator gave one. Raises UserError, TaskError, SandboxError."""
    specs, yields = _made(wanted)
    with transaction.atomic():
        return _kept(wanted, specs, yields)


def _made(wanted: Wanted) -> tuple[list[TaskSpec], list[Yield]]:
    chosen = _check(wanted)
    built = [_built(name, environment) for name, environment in chosen.items()]
    mined = [_history(one) if "mining" in wanted.generators else () for one in chosen.values()]
    return generated(wanted, built, mined, rewrite=_rewriter(wanted.rewriter))


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
) -> tuple[list[TaskSpec], list[Yield]]:
    """The tasks of every generator and package (each with its commits), and what each run tried."""
    split: Literal["train", "held-out"] = "train" if wanted.purpose == "train" else "held-out"

    async def work(backend: Backend) -> tuple[list[TaskSpec], list[Yield]]:
        specs: list[TaskSpec] = []
        yields: list[Yield] = []
        for package, history in zip(built, histories, strict=True):
            for generator in wanted.generators:
                found = Yield(generator=generator, package=package.name)
                async for task in generate_tasks(
                    store(), package, backend=backend, generator=generator, count=wanted.count, seed=wanted.seed,
                    split=split, styles=wanted.styles, rewrite=rewrite, found=found,
                    history=history if generator == "mining" else (),
                ):  # fmt: skip
                    specs.append(task)
                yields.append(found)
        return specs, yields

    return with_backend(work)


def save_yield(found: Yield) -> GeneratorRun:
    return GeneratorRun.objects.create(**found.model_dump())
