"""Saved views of the runs table: an address with a name, one's own or shared with everybody."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import QueryDict

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.ops.errors import NotFound, UserError
from composer_web.runs.checks import check_text
from composer_web.runs.filters import RunFilter
from composer_web.runs.models import SavedView

MOST_VIEWS = 50
MOST_NAME = 60
KEPT = (*RunFilter.base_filters, "sort", "cols")


def clean(query: str) -> str:
    """What of an address belongs to a view: filters, order and columns; not the page."""
    given = QueryDict(query.lstrip("?"))
    out = QueryDict(mutable=True)
    for name in KEPT:
        if values := [value[:200] for value in given.getlist(name) if value]:
            out.setlist(name, values)
    return out.urlencode()


def views_for(user: User) -> QuerySet[SavedView]:
    """One's own and the shared ones."""
    return SavedView.objects.filter(Q(owner=user) | Q(shared=True)).select_related("owner")


@transaction.atomic
def save_view(*, name: str, query: str, shared: bool, owner: User) -> SavedView:
    """Keep an address; one's own view of the same name is replaced. Raises UserError."""
    name = check_text("name", name.strip())
    if not 1 <= len(name) <= MOST_NAME:
        raise UserError("name", f"a view's name has 1 to {MOST_NAME} characters; found {len(name)}")
    view = SavedView.objects.filter(owner=owner, name=name).first()
    if view is None:
        if SavedView.objects.filter(owner=owner).count() >= MOST_VIEWS:
            raise UserError("name", f"you have {MOST_VIEWS} views; delete one first")
        view = SavedView(owner=owner, name=name)
    view.query, view.shared = clean(query), shared
    view.save()
    audit(actor=owner, action="view.save", target=f"view:{view.pk}", name=name, query=view.query, shared=shared)
    return view


@transaction.atomic
def delete_view(*, pk: int, actor: User) -> None:
    """One's own, or as an admin any shared one. Raises NotFound, also for what is not one's own."""
    query = views_for(actor) if actor.may("admin") else SavedView.objects.filter(owner=actor)
    view = query.filter(pk=pk).first()
    if view is None:
        raise NotFound("view of yours", pk)
    audit(actor=actor, action="view.delete", target=f"view:{pk}", name=view.name, query=view.query)
    view.delete()
