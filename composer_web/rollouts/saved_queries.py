"""Saved queries of the rollouts table: an address with a name, one's own or shared with everybody."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import QueryDict

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.ops.errors import NotFound, UserError
from composer_web.rollouts.filters import RolloutFilter
from composer_web.rollouts.models import SavedQuery

MOST = 50
LONGEST_NAME = 60
KEPT = (*RolloutFilter.base_filters, "sort")


def clean(query: str) -> str:
    """What of an address belongs to a query: filters and order; not the page."""
    given = QueryDict(query.lstrip("?")[:10_000])
    out = QueryDict(mutable=True)
    for name in KEPT:
        if values := [value[:200] for value in given.getlist(name) if value]:
            out.setlist(name, values)
    return out.urlencode()


def queries_for(user: User) -> QuerySet[SavedQuery]:
    """One's own and the shared ones."""
    return SavedQuery.objects.filter(Q(owner=user) | Q(shared=True)).select_related("owner")


@transaction.atomic
def save(*, name: str, query: str, shared: bool, owner: User) -> SavedQuery:
    """Keep an address; one's own query of the same name is replaced. Raises UserError."""
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UserError("name", f"a query's name has 1 to {LONGEST_NAME} characters; found {len(name)}")
    kept = SavedQuery.objects.filter(owner=owner, name=name).first()
    if kept is None:
        if SavedQuery.objects.filter(owner=owner).count() >= MOST:
            raise UserError("name", f"you have {MOST} queries; delete one first")
        kept = SavedQuery(owner=owner, name=name)
    kept.query, kept.shared = clean(query), shared
    kept.save()
    audit(actor=owner, action="query.save", target=f"query:{kept.pk}", name=name, query=kept.query, shared=shared)
    return kept


@transaction.atomic
def delete(*, pk: int, actor: User) -> None:
    """One's own, or as an admin any shared one. Raises NotFound, also for what is not one's own."""
    rows = queries_for(actor) if actor.may("admin") else SavedQuery.objects.filter(owner=actor)
    kept = rows.filter(pk=pk).first()
    if kept is None:
        raise NotFound("query of yours", pk)
    audit(actor=actor, action="query.delete", target=f"query:{pk}", name=kept.name, query=kept.query)
    kept.delete()
