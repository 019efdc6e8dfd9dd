"""Writes of environments."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.live.hints import hint
from composer_web.ops import leases
from composer_web.ops.errors import Conflict
from composer_web.ops.history import IllegalTransition, change_state
from composer_web.ops.outbox import enqueue
from composer_web.repositories.models import ENVIRONMENT_LEGAL, Environment, EnvironmentState

MAX_BUILDS = 3


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
def claim(*, environment_id: int, owner: str, seconds: float) -> tuple[Environment, leases.Held] | None:
    """A requested environment for this builder; None when it is not requested any more or someone builds it."""
    environment = Environment.objects.select_for_update().get(pk=environment_id)
    if environment.state != EnvironmentState.REQUESTED:
        return None
    held = leases.take(f"environment:{environment.pk}", owner=owner, seconds=seconds)
    if held is None:
        return None
    move(environment=environment, to=EnvironmentState.BUILDING, reason=f"taken by {owner}")
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
    leases.release(held)
    return environment


@transaction.atomic
def fail(*, environment: Environment, held: leases.Held, cause: str, log_key: str = "") -> Environment:
    """Raises LeaseLost."""
    leases.require(held)
    move(environment=environment, to=EnvironmentState.FAILED, reason=cause, failure=cause, log_key=log_key)
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
