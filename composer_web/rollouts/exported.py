"""Which tables leave the product as files, each with its columns and the filters of its list: the one place of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import django_filters as filters
from django.core.exceptions import TooManyFieldsSent
from django.db.models import QuerySet
from django.http import QueryDict

from composer_web.accounts.models import Role, User
from composer_web.ops.errors import Denied, UserError
from composer_web.ops.sheets import Column, Columns, Row
from composer_web.rollouts import selectors
from composer_web.rollouts.filters import FindingFilter, RolloutFilter

LONGEST_VALUE = 200
TABLES = {
    "rollouts": "composer_web.rollouts.exported:ROLLOUTS",
    "findings": "composer_web.rollouts.exported:FINDINGS",
    "runs": "composer_web.runs.exported:RUNS",
    "metrics": "composer_web.runs.exported:METRICS",
    "evaluations": "composer_web.evals.exported:EVALUATIONS",
    "leaderboard": "composer_web.evals.exported:LEADERBOARD",
    "tasks": "composer_web.tasks.exported:TASKS",
    "sessions": "composer_web.gateway.exported:SESSIONS",
}
"""Its name → where it is. Loaded when it is wanted: a table knows its app, and apps know this module."""

Pages = Callable[[QuerySet[Any], Columns, int, int | None], Iterator[list[Row]]]
"""Rows, their columns, how many at a time, for which export if for one → the rows of its file. What may have to be deleted
out of files again is noted for the export before it is read."""


def newest_first(rows: QuerySet[Any], columns: Columns, size: int, _: int | None) -> Iterator[list[Row]]:
    """By id, so that what comes in meanwhile moves nothing."""
    last: int | None = None
    wanted = list(dict.fromkeys(["pk", *(column.source for column in columns.values())]))
    while True:
        page = rows if last is None else rows.filter(pk__lt=last)
        found = list(page.order_by("-pk").values(*wanted)[:size])
        if not found:
            return
        yield [{name: row[column.source] for name, column in columns.items()} for row in found]
        last = found[-1]["pk"]


@dataclass(frozen=True)
class Table:
    """`rows` gives what the filters narrow; `page` is the address of the list that has the same filters."""

    noun: str
    columns: Columns
    filter: type[filters.FilterSet]
    rows: Callable[[], QuerySet[Any]]
    page: str
    pages: Pages = newest_first
    linked: bool = True
    """Whether that list takes the same filters."""
    kept: tuple[str, ...] = ()
    """More of the list's address than its filters."""
    role: str = Role.VIEWER
    """Least role of who asks, has it written and fetches it: that of the list's page."""

    def open_to(self, user: User) -> None:
        """Raises Denied for who may not read it where the request acts."""
        if not user.may(self.role):
            raise Denied(f"an export of {self.noun.lower()} needs the role {self.role}, and a token one of its scopes")

    def clean(self, query: str) -> str:
        """What of an address narrows the list. Raises UserError."""
        try:
            given = QueryDict(query.lstrip("?"))
        except TooManyFieldsSent:
            raise UserError("query", "query holds too many filters; keep those that narrow the list") from None
        out = QueryDict(mutable=True)
        for name in (*self.filter.base_filters, *self.kept):
            if values := [value[:LONGEST_VALUE] for value in given.getlist(name) if value]:
                out.setlist(name, values)
        return out.urlencode()

    def words(self, query: str) -> list[str]:
        """The filters of a cleaned address as the form of the list names them; asks the database nothing."""
        given, said = QueryDict(query), []
        for name, field in self.filter.base_filters.items():
            choices = field.extra.get("choices") or ()
            known = {str(value): label for value, label in getattr(choices, "choices", choices)}
            if values := [str(known.get(value, value)) for value in given.getlist(name)]:
                said.append(f"{field.label}{'' if field.label[-1] in '≥≤' else ':'} {', '.join(values)}")
        return said

    def select(self, query: str, *, asker: User) -> QuerySet[Any]:
        """The rows that these filters leave for who asks. Raises UserError that names the filter."""
        found = self.filter(QueryDict(query), queryset=self.rows(), request=SimpleNamespace(user=asker, auth=None))
        if not found.is_valid():
            name, errors = next(iter(found.errors.items()))
            raise UserError(name, f"{name}: {' '.join(map(str, errors))}")
        rows: QuerySet[Any] = found.qs
        return rows


@lru_cache
def table(what: str) -> Table:
    """Raises UserError for what is no table."""
    if what not in TABLES:
        raise UserError("what", f"what is one of {', '.join(TABLES)}, not {what!r}")
    module, _, name = TABLES[what].partition(":")
    found: Table = getattr(import_module(module), name)
    return found


ROLLOUTS = Table(
    noun="Rollouts",
    filter=RolloutFilter,
    rows=selectors.rollouts,
    page="rollouts:list",
    kept=("sort",),
    columns={
        "rollout": Column("id", "integer"),
        "run": Column("group__run_id", "integer"),
        "evaluation": Column("group__evaluation_id", "integer"),
        "fork": Column("group__fork_id", "integer"),
        "group": Column("group_id", "integer"),
        "task": Column("group__task_version__task__slug"),
        "prompt_index": Column("group__prompt_index", "integer"),
        "sample": Column("sample", "integer"),
        "state": Column("state"),
        "verdict": Column("verdict"),
        "reward": Column("reward", "number"),
        "reward_parts": Column("reward_parts", "data"),
        "stop_reason": Column("stop_reason"),
        "cause": Column("cause"),
        "turns": Column("turns", "integer"),
        "tool_calls": Column("tool_calls", "integer"),
        "tool_errors": Column("tool_errors", "integer"),
        "policy_tokens": Column("policy_tokens", "integer"),
        "total_tokens": Column("total_tokens", "integer"),
        "oldest_version": Column("oldest_version", "integer"),
        "newest_version": Column("newest_version", "integer"),
        "group_mean_reward": Column("group__mean_reward", "number"),
        "consumed_step": Column("group__consumed_step", "integer"),
        "finished_at": Column("finished_at", "time"),
    },
)

FINDINGS = Table(
    noun="Findings",
    filter=FindingFilter,
    rows=selectors.findings,
    page="rollouts:findings",
    columns={
        "finding": Column("id", "integer"),
        "subject": Column("subject"),
        "run": Column("run_id", "integer"),
        "evaluation": Column("group__evaluation_id", "integer"),
        "group": Column("group_id", "integer"),
        "rollout": Column("rollout_id", "integer"),
        "task": Column("slug"),
        "source": Column("source"),
        "rule": Column("rule"),
        "rule_version": Column("rule_version", "integer"),
        "severity": Column("severity"),
        "summary": Column("summary"),
        "evidence": Column("evidence", "data"),
        "hits": Column("hits", "integer"),
        "quarantined": Column("quarantined", "truth"),
        "state": Column("state"),
        "decided_by": Column("decided_by__username"),
        "decided_at": Column("decided_at", "time"),
        "note": Column("note"),
        "created_at": Column("created_at", "time"),
    },
)
