"""Named addresses of a list (its filters, order and columns), one's own or shared with everybody."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import TooManyFieldsSent
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, QueryDict
from django.urls import reverse

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import NotFound, UserError
from composer_web.ui.filters import LONGEST_VALUE, OF_PAGES
from composer_web.ui.models import ListName, SavedView

MAX = 50
"""Views of one list that one person keeps."""
LONGEST_NAME = 60
LONGEST_QUERY = 2000
PAGES = {
    ListName.RUNS: "runs:list",
    ListName.ROLLOUTS: "rollouts:list",
    ListName.TASKS: "tasks:list",
    ListName.EVALUATIONS: "evals:list",
    ListName.FINDINGS: "rollouts:findings",
    ListName.ANNOTATIONS: "review:annotations",
}
NOT_KEPT = OF_PAGES - {"sort", "cols"}


def page_of(table: str) -> str:
    """Address of a list. Raises UserError for one without saved views."""
    if table not in ListName.values:
        raise UserError("table", f"table is {table[:80]!r}; views are saved of {', '.join(ListName.values)}")
    return reverse(PAGES[ListName(table)])


def clean(query: str) -> str:
    """What of an address is kept: not its page. Raises UserError for more than any list has."""
    try:
        given = QueryDict(query.lstrip("?"))
    except TooManyFieldsSent:
        raise UserError("query", "query holds too many filters; keep those that narrow the list") from None
    out = QueryDict(mutable=True)
    for name in given:
        if name not in NOT_KEPT and (values := [value[:LONGEST_VALUE] for value in given.getlist(name) if value]):
            out.setlist(name, values)
    text: str = out.urlencode()
    if len(text) > LONGEST_QUERY:
        raise UserError("query", f"query has {len(text)} characters, at most {LONGEST_QUERY}; keep fewer filters")
    return text


def views_of(user: User, table: str = "") -> QuerySet[SavedView]:
    """One's own and the shared ones, of one list or of all."""
    rows = SavedView.objects.filter(Q(owner=user) | Q(shared=True)).select_related("owner")
    return rows.filter(table=table) if table else rows


def offered(request: HttpRequest, user: User, table: str) -> dict[str, Any]:
    """What the menu of a list shows (partials/saved_views.html)."""
    return {
        "table": table,
        "page": page_of(table),
        "query": clean(request.GET.urlencode()),
        "views": views_of(user, table),
    }


@transaction.atomic
def save(*, table: str, name: str, query: str, shared: bool, owner: User) -> SavedView:
    """Keep an address; one's own of the same list and name is replaced. Raises UserError."""
    page_of(table)
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_NAME or "\x00" in name:
        found = "a NUL character" if "\x00" in name else len(name)
        raise UserError("name", f"the name of a view has 1 to {LONGEST_NAME} characters; found {found}")
    fields = {"query": clean(query), "shared": shared}
    mine = SavedView.objects.filter(owner=owner, table=table)
    if not mine.filter(name=name).exists() and mine.count() >= MAX:
        raise UserError("name", f"you keep {MAX} views of {table}; delete one first")
    kept, _ = SavedView.objects.update_or_create(owner=owner, table=table, name=name, defaults=fields)
    audit(actor=owner, action="view.save", target=f"view:{kept.pk}", table=table, name=name, **fields)
    return kept


@transaction.atomic
def delete(*, pk: int, actor: User) -> str:
    """Delete one's own, or as an admin any shared one; its list. Raises NotFound, also for what is not one's own."""
    rows = views_of(actor) if actor.may("admin") else SavedView.objects.filter(owner=actor)
    kept = rows.filter(pk=pk).first()
    if kept is None:
        raise NotFound("view of yours", pk)
    audit(actor=actor, action="view.delete", target=f"view:{pk}", table=kept.table, name=kept.name, query=kept.query)
    kept.delete()
    return kept.table
