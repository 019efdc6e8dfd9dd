"""Imports that people ask for: asked on a page, by API or command line, carried out by a worker."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.scoping import project_now
from composer_web.accounts.services import audit
from composer_web.core.queue import leases
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.core.queue.outbox import enqueue
from composer_web.live.hints import hint
from composer_web.policies.models import ORDER_OPEN, Policy, PolicyImport
from trainer.model_import import RENDERERS

MAX_OPEN = 4
"""Open imports of one project: each reads a model's weights."""
MAX_ATTEMPTS = 3
SHOWN = timedelta(days=2)
"""How long the page shows an import that failed."""


def resource(import_id: int) -> str:
    """Name of the worker's lease."""
    return f"policy-import:{import_id}"


def orders() -> QuerySet[PolicyImport]:
    return PolicyImport.objects.select_related("policy", "created_by")


def get_order(pk: int) -> PolicyImport:
    """Raises NotFound."""
    found = orders().filter(pk=pk).first()
    if found is None:
        raise NotFound("import", pk)
    return found


def of_page() -> list[PolicyImport]:
    """Those that are open, and what lately ended: a finished one links to its policy."""
    since = timezone.now() - SHOWN
    return [row for row in orders()[:10] if row.open or row.created_at > since]


def ask(
    *, name: str, path: str, template: str = "", renderer: str = "auto", description: str = "", actor: User | None = None
) -> PolicyImport:
    """A worker will import it. Raises UserError that names the field, Conflict."""
    name, path = name.strip(), path.strip()
    if not name or len(name) > 100 or "/" in name or "@" in name:
        raise UserError("name", f"a policy's name is needed, without / and @, at most 100 characters (found {name[:40]!r})")
    if not Path(path).is_absolute():
        raise UserError("path", f"an absolute path on the workers' machine is needed (found {path[:80]!r})")
    if renderer not in RENDERERS:
        raise UserError("renderer", f"there is no renderer {renderer!r}; there are: {', '.join(RENDERERS)}")
    if (taken := Policy.objects.filter(name=name).first()) is not None and taken.is_endpoint:
        raise UserError("name", f"{name!r} is the name of an endpoint; choose another")
    project = project_now()
    if PolicyImport.objects.filter(project=project, state__in=ORDER_OPEN).count() >= MAX_OPEN:
        raise Conflict(f"{MAX_OPEN} imports of this project wait or run; wait until one has ended")
    try:
        with transaction.atomic():
            made = PolicyImport.objects.create(
                project_id=project,
                name=name,
                path=path,
                template=template,
                renderer=renderer,
                description=description[:2000],
                created_by=actor,
            )
            audit(actor=actor, action="policy.import", target=f"import:{made.pk}", name=name, path=path)
            _send(made)
    except IntegrityError as error:
        raise Conflict(f"{name!r} is being imported; wait until that has ended") from error
    return made


def _send(order: PolicyImport) -> None:
    enqueue("policies.import", {"import_id": order.pk}, queue="io", key=resource(order.pk))
    hint("policies")


def claim(import_id: int) -> PolicyImport | None:
    """A worker begins; None where nothing is to be done any more."""
    with transaction.atomic():
        leases.fence()
        order = orders().filter(pk=import_id, state__in=ORDER_OPEN).select_for_update(of=("self",)).first()
        if order is None:
            return None
        if order.attempts >= MAX_ATTEMPTS:
            fail(
                order,
                f"{MAX_ATTEMPTS} workers were lost while they imported it, as a rule for lack of memory; import it on a "
                "machine with more memory",
            )
            return None
        order.attempts += 1
        order.state = "running"
        order.save(update_fields=["attempts", "state"])
    hint("policies")
    return order


def finish(order: PolicyImport, policy: Policy) -> None:
    _end(order, state="done", policy=policy)


def fail(order: PolicyImport, cause: str) -> None:
    _end(order, state="failed", cause=cause or "it ended without a word; the worker's log has what there is")


def _end(order: PolicyImport, *, state: str, cause: str = "", policy: Policy | None = None) -> None:
    PolicyImport.objects.filter(pk=order.pk, state__in=ORDER_OPEN).update(
        state=state, cause=cause[:2000], policy=policy, finished_at=timezone.now()
    )
    hint("policies")


def send_again(order: PolicyImport) -> None:
    """Its worker or its message was lost."""
    with transaction.atomic():
        PolicyImport.objects.filter(pk=order.pk, state="running").update(state="waiting")
        _send(order)
