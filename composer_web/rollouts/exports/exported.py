"""Single registry of exportable tables: the columns of each, and the filters of its list."""

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
from composer_web.core.errors import Denied, UserError
from composer_web.rollouts import selectors
from composer_web.rollouts.search.filters import FindingFilter, RolloutFilter
from composer_web.ui.filters import OF_PAGES, check_names, strict
from composer_web.ui.table_writers import Column, Columns, Row

TABLES = {
    "rollouts": "composer_web.rollouts.exports.exported:ROLLOUTS",
    "findings": "composer_web.rollouts.exports.exported:FINDINGS",
    "annotations": "composer_web.review.http.exported:ANNOTATIONS",
    "runs": "composer_web.runs.http.exported:RUNS",
    "metrics": "composer_web.runs.http.exported:METRICS",
    "evaluations": "composer_web.evals.http.exported:EVALUATIONS",
    "leaderboard": "composer_web.evals.http.exported:LEADERBOARD",
    "tasks": "composer_web.tasks.curation.exported:TASKS",
    "sessions": "composer_web.gateway.http.exported:SESSIONS",
}
"""Table name → import path. Loaded lazily: a table imports its app, and apps import this module."""

Pages = Callable[[QuerySet[Any], Columns, int, int | None], Iterator[list[Row]]]
"""(rows, columns, chunk size, export id or None) → rows of the file. Data that may later have to be deleted from
files is noted for the export before it is read."""


def newest_first(rows: QuerySet[Any], columns: Columns, size: int, _: int | None) -> Iterator[list[Row]]:
    """Rows by descending id, so that new rows do not shift the pages."""
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
    """`rows` returns what the filters apply to. `page` is the URL of the list with the same filters."""

    noun: str
    columns: Columns
    filter: type[filters.FilterSet]
    rows: Callable[[], QuerySet[Any]]
    page: str
    pages: Pages = newest_first
    linked: bool = True
    """Whether that list takes the same filters."""
    kept: tuple[str, ...] = ()
    """URL parameters of the list to keep besides its filters."""
    of_page: tuple[str, ...] = ()
    """URL parameters that only affect the list's page."""
    role: str = Role.VIEWER
    """Minimum role to request, write and download the export: the role of the list's page."""

    def open_to(self, user: User) -> None:
        """Raises Denied for a user who may not read the table in the current scope."""
        if not user.may(self.role):
            raise Denied(f"an export of {self.noun.lower()} needs the role {self.role}, and a token one of its scopes")

    def clean(self, query: str) -> str:
        """Filter parameters of a query string. Raises UserError, WrongFilter."""
        try:
            given = QueryDict(query.lstrip("?"))
        except TooManyFieldsSent:
            raise UserError("query", "query holds too many filters; keep those that narrow the list") from None
        check_names(self.filter, given, own=OF_PAGES | {*self.kept, *self.of_page})
        out = QueryDict(mutable=True)
        for name in (*self.filter.base_filters, *self.kept):
            if values := [value for value in given.getlist(name) if value]:
                out.setlist(name, values)
        return out.urlencode()

    def words(self, query: str) -> list[str]:
        """Labels of the filters in a cleaned query string, as in the list's form. Runs no query."""
        given, said = QueryDict(query), []
        for name, field in self.filter.base_filters.items():
            choices = field.extra.get("choices") or ()
            known = {str(value): label for value, label in getattr(choices, "choices", choices)}
            if values := [str(known.get(value, value)) for value in given.getlist(name)]:
                said.append(f"{field.label}{'' if field.label[-1] in '≥≤' else ':'} {', '.join(values)}")
        return said

    def select(self, query: str, *, asker: User) -> QuerySet[Any]:
        """Rows that match these filters and that the asker may see. Raises WrongFilter."""
        request = SimpleNamespace(user=asker, auth=None)
        own = OF_PAGES | set(self.kept)
        rows: QuerySet[Any] = strict(self.filter, QueryDict(query), queryset=self.rows(), request=request, own=own).qs
        return rows


@lru_cache
def table(what: str) -> Table:
    """Raises UserError for an unknown table."""
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
        "output_tokens": Column("output_tokens", "integer"),
        "policy_tokens": Column("output_tokens", "integer"),  # its name until release 0.2
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
