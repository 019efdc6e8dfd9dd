"""Suites made by the generators over locked packages, with what each run tried and spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.ops.errors import UserError
from composer_web.ops.outbox import enqueue
from composer_web.repositories import services as repositories
from composer_web.repositories.building import describe, locked_packages
from composer_web.tasks.models import GeneratorRun, Suite
from composer_web.tasks.overlap import drop_duplicates, store
from composer_web.tasks.services import build_suite
from sandbox.backends.base import Backend
from sandbox.tasks.generators.instructions import Style
from sandbox.tasks.generators.producing import GeneratorName, generate_tasks
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


def request_suite(wanted: Wanted, *, actor: User | None = None) -> None:
    """Send the order to the build workers. Raises UserError for packages that are not locked."""
    _check(wanted)
    with transaction.atomic():
        enqueue(
            "tasks.generate", {"wanted": wanted.model_dump(mode="json")}, queue="build", key=f"generate:{wanted.name}"
        )
        audit(actor=actor, action="suite.generate", target=f"suite:{wanted.name}", generators=list(wanted.generators))


def _check(wanted: Wanted) -> None:
    if unknown := set(wanted.packages) - locked_packages().keys():
        raise UserError("packages", f"not pinned in packages.lock: {', '.join(sorted(unknown))}")


def generate_suite(wanted: Wanted) -> Suite | None:
    """Make the tasks here and now; None when no generator gave one. Raises UserError, TaskError, SandboxError."""
    _check(wanted)
    built = build_package_environments(store(), list(wanted.packages))
    for package in built:
        source = f"{package.name}=={package.version}"
        digest = package.environment.digest
        repositories.register_ready(name=package.name, source=source, digest=digest, detail=describe(package))
    specs, yields = generated(wanted, built)
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


def generated(wanted: Wanted, built: Sequence[BuiltPackage]) -> tuple[list[TaskSpec], list[Yield]]:
    """The tasks of every generator and package, and what each run tried."""
    split: Literal["train", "held-out"] = "train" if wanted.purpose == "train" else "held-out"

    async def work(backend: Backend) -> tuple[list[TaskSpec], list[Yield]]:
        specs: list[TaskSpec] = []
        yields: list[Yield] = []
        for package in built:
            for generator in wanted.generators:
                found = Yield(generator=generator, package=package.name)
                async for task in generate_tasks(
                    store(), package, backend=backend, generator=generator, count=wanted.count, seed=wanted.seed,
                    split=split, styles=wanted.styles, found=found,
                ):  # fmt: skip
                    specs.append(task)
                yields.append(found)
        return specs, yields

    return with_backend(work)


def save_yield(found: Yield) -> GeneratorRun:
    return GeneratorRun.objects.create(**found.model_dump())
