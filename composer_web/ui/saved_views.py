"""Named addresses of a table, one's own or shared with everybody: saved views of runs, saved queries of rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import TooManyFieldsSent
from django.db import models, transaction
from django.db.models import Q, QuerySet
from django.http import QueryDict

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import NotFound, UserError

MAX = 50
LONGEST_NAME = 60
M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True)
class Shelf(Generic[M]):
    """`model` has owner, name, query and shared; `kept` names what of an address belongs to it, which is not its page."""

    model: type[M]
    noun: str
    kept: tuple[str, ...]

    def clean(self, query: str) -> str:
        """What of an address is kept. Raises UserError for more parameters than any table has."""
        try:
            given = QueryDict(query.lstrip("?"))
        except TooManyFieldsSent:
            raise UserError("query", "query holds too many filters; keep those that narrow the list") from None
        out = QueryDict(mutable=True)
        for name in self.kept:
            if values := [value[:200] for value in given.getlist(name) if value]:
                out.setlist(name, values)
        return out.urlencode()

    def of(self, user: User) -> QuerySet[M]:
        """One's own and the shared ones."""
        return self._rows.filter(Q(owner=user) | Q(shared=True)).select_related("owner")

    @transaction.atomic
    def save(self, *, name: str, query: str, shared: bool, owner: User) -> M:
        """Keep an address; one's own of the same name is replaced. Raises UserError."""
        name = name.strip()
        if not 1 <= len(name) <= LONGEST_NAME or "\x00" in name:
            found = "a NUL character" if "\x00" in name else len(name)
            raise UserError("name", f"the name of a {self.noun} has 1 to {LONGEST_NAME} characters; found {found}")
        fields = {"query": self.clean(query), "shared": shared}
        mine = self._rows.filter(owner=owner)
        if not mine.filter(name=name).exists() and mine.count() >= MAX:
            raise UserError("name", f"you keep {MAX} under a name already; delete one first")
        kept, _ = self._rows.update_or_create(owner=owner, name=name, defaults=fields)
        audit(actor=owner, action=f"{self.noun}.save", target=f"{self.noun}:{kept.pk}", name=name, **fields)
        return kept

    @transaction.atomic
    def delete(self, *, pk: int, actor: User) -> None:
        """One's own, or as an admin any shared one. Raises NotFound, also for what is not one's own."""
        rows = self.of(actor) if actor.may("admin") else self._rows.filter(owner=actor)
        kept: Any = rows.filter(pk=pk).first()
        if kept is None:
            raise NotFound(f"{self.noun} of yours", pk)
        audit(actor=actor, action=f"{self.noun}.delete", target=f"{self.noun}:{pk}", name=kept.name, query=kept.query)
        kept.delete()

    @property
    def _rows(self) -> QuerySet[M]:
        rows: QuerySet[M] = self.model._default_manager.all()
        return rows
