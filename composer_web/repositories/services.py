"""Writes of environments."""

from __future__ import annotations

import re
from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.core.history import IllegalTransition, change_state
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.live.hints import hint
from composer_web.repositories import tokens
from composer_web.repositories.models import (
    ENVIRONMENT_LEGAL,
    BuildLine,
    Environment,
    EnvironmentState,
    Repository,
    SourceKind,
)

MAX_BUILDS = 3
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


@transaction.atomic
def request_build(*, name: str, source: str, actor: User | None = None) -> Environment:
    """Ask the build workers for an environment; one that failed is tried again. Raises Conflict."""
    environment, created = Environment.objects.get_or_create(
        name=name, defaults={"source": source, "created_by": actor}
    )
    if not created:
        if environment.source != source:
            raise Conflict(f"environment {name!r} is built from {environment.source}; choose another name", "name")
        if environment.state in ("ready", "building"):
            return environment
        if environment.state == "failed":
            move(environment=environment, to=EnvironmentState.REQUESTED, reason="requested again", failure="")
    audit(actor=actor, action="environment.build", target=f"environment:{environment.pk}", name=name, source=source)
    _send(environment)
    hint("environments")
    return environment


@transaction.atomic
def register_ready(*, name: str, source: str, digest: str, detail: dict[str, Any] | None = None) -> Environment:
    """An environment that was built outside the workers (set-up, import). Idempotent by name and digest."""
    found = Environment.objects.select_for_update().filter(name=name).first()
    if found is None:
        found = Environment.objects.create(
            name=name, source=source, digest=digest, state=EnvironmentState.READY, detail=detail or {}
        )
    elif found.digest != digest:
        found.digest, found.detail = digest, detail or {}
        found.save(update_fields=["digest", "detail", "updated_at"])
    hint("environments")
    return found


@transaction.atomic
def add_repository(
    *,
    name: str,
    kind: str,
    location: str,
    revision: str = "",
    token: str = "",
    archive_key: str = "",
    actor: User | None = None,
) -> Repository:
    """A repository, and the request to build its environment. Raises UserError, Conflict."""
    if not NAME.fullmatch(name):
        raise UserError("name", f"name {name!r} is not usable; letters, digits, dots, dashes and underscores are")
    if kind not in SourceKind.values:
        raise UserError("kind", f"kind {kind!r} is unknown; use one of {', '.join(SourceKind.values)}")
    if Environment.objects.filter(name=name).exists() or Repository.objects.filter(name=name).exists():
        raise Conflict(f"there is an environment {name!r} already; choose another name", "name")
    repository = Repository.objects.create(
        name=name, kind=kind, location=location, revision=revision, token=tokens.encrypt(token), archive_key=archive_key,
        created_by=actor,
    )  # fmt: skip
    source = f"{kind} {location}" + (f" at {revision}" if revision else "")
    environment = Environment.objects.create(name=name, source=source, repository=repository, created_by=actor)
    audit(
        actor=actor, action="repository.add", target=f"environment:{environment.pk}", name=name, kind=kind, location=location,
        revision=revision, private=bool(token),
    )  # fmt: skip
    _send(environment)
    hint("environments")
    return repository


@transaction.atomic
def pin_repository(*, repository: Repository, pin: str, licence: str, notes: list[str]) -> Repository:
    """What was fetched; a repository once pinned stays at that pin."""
    repository.pin, repository.licence, repository.notes = repository.pin or pin[:140], licence[:120], notes
    repository.save(update_fields=["pin", "licence", "notes"])
    return repository


@transaction.atomic
def build_again(*, environment: Environment, actor: User | None = None) -> Environment:
    """Try a failed (or cancelled) build of a repository again. Raises Conflict."""
    move(
        environment=environment,
        to=EnvironmentState.REQUESTED,
        reason="requested again",
        failure="",
        cancel_requested=False,
    )
    audit(actor=actor, action="environment.build", target=f"environment:{environment.pk}", name=environment.name)
    _send(environment)
    return environment


@transaction.atomic
def cancel_build(*, environment: Environment, actor: User | None = None) -> Environment:
    """Stop a build: at once while nobody has begun it, else at the builder's next look. Raises Conflict."""
    environment = Environment.objects.select_for_update().get(pk=environment.pk)
    if environment.state == EnvironmentState.REQUESTED:
        move(
            environment=environment, to=EnvironmentState.FAILED, reason="cancelled", failure="cancelled before it began"
        )
    elif environment.state == EnvironmentState.BUILDING:
        environment.cancel_requested = True
        environment.save(update_fields=["cancel_requested", "updated_at"])
    else:
        raise Conflict(f"environment {environment.name!r} is {environment.state}: nothing is being built", "state")
    audit(actor=actor, action="environment.cancel", target=f"environment:{environment.pk}", name=environment.name)
    hint("environments")
    return environment


@transaction.atomic
def add_lines(*, environment: Environment, text: str) -> None:
    """A piece of a running build's log."""
    BuildLine.objects.create(environment=environment, text=text)
    hint("environments")


@transaction.atomic
def claim(*, environment_id: int, owner: str, seconds: float) -> tuple[Environment, leases.Held] | None:
    """A requested environment for this builder; None when it is not requested any more or someone builds it."""
    environment = Environment.objects.select_for_update().get(pk=environment_id)
    if environment.state != EnvironmentState.REQUESTED:
        return None
    held = leases.take(f"environment:{environment.pk}", owner=owner, seconds=seconds)
    if held is None:
        return None
    environment.lines.all().delete()
    move(environment=environment, to=EnvironmentState.BUILDING, reason=f"taken by {owner}", cancel_requested=False)
    return environment, held


@transaction.atomic
def finish(
    *, environment: Environment, held: leases.Held, digest: str, detail: dict[str, Any], log_key: str
) -> Environment:
    """Raises LeaseLost."""
    leases.require(held)
    move(
        environment=environment,
        to=EnvironmentState.READY,
        reason="built",
        digest=digest,
        detail=detail,
        log_key=log_key,
    )
    environment.lines.all().delete()
    leases.release(held)
    return environment


@transaction.atomic
def fail(*, environment: Environment, held: leases.Held, cause: str, log_key: str = "") -> Environment:
    """Raises LeaseLost."""
    leases.require(held)
    move(environment=environment, to=EnvironmentState.FAILED, reason=cause[:500], failure=cause, log_key=log_key)
    environment.lines.all().delete()
    leases.release(held)
    return environment


@transaction.atomic
def rebuild_lost(*, environment: Environment) -> Environment:
    """The builder died: try again, or give up after MAX_BUILDS builds."""
    builds = environment.transitions.filter(to_state="building").count()
    if builds >= MAX_BUILDS:
        cause = f"its builder was lost {builds} times"
        return move(environment=environment, to=EnvironmentState.FAILED, reason=cause, failure=cause)
    move(environment=environment, to=EnvironmentState.REQUESTED, reason="its builder was lost")
    _send(environment)
    return environment


def _send(environment: Environment) -> None:
    enqueue("repositories.build", {"environment_id": environment.pk}, queue="build", key=f"build:{environment.pk}")


def move(*, environment: Environment, to: str, reason: str, **fields: Any) -> Environment:
    """Change of state. Raises Conflict."""
    try:
        change_state(environment, to, legal=ENVIRONMENT_LEGAL, reason=reason, updated_at=timezone.now(), **fields)
    except IllegalTransition as error:
        raise Conflict(str(error), "state") from error
    hint("environments")
    return environment
