"""`make bench NAME=tables`: every list page with 100,000 tasks and 1,000,000 rollouts behind it.

A throw-away Postgres is filled (`tables_data`) and this process warmed as a server's is (`composer_web/warm.py`); then each
list is asked for through Django's test client: as it opens, by each filter, by each sortable column both ways, and at its
last page. What counts is the time from request to answer at the server, with all queries, templates and middleware.
`p95_ms_max` is that of the slowest address (p95 over its requests), `p95_ms_open` the slowest of those that open a list,
`queries_max` the most queries of any address. `p95_ms_facets` is that of the slowest facets, which a list asks for when it is
there already, under each filter; some of them one by one, when somebody opens them.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from scripts.stack import throwaway
from tests.bench import report

GOALS: dict[str, report.Goal] = {"p95_ms_max": ("<=", 200.0), "queries_max": ("<=", 14.0)}
SAMPLES = {
    "run": "3",
    "evaluation": "7",
    "task": "mutation",
    "q": "mutation",
    "suite": "train",
    "policy": "policy-3",
    "rule": "early-exit",
    "version": "40",
    "reward_min": "0.5",
    "reward_max": "0.5",
    "strength_max": "0.3",
}
"""A value for each filter that has no choices (else 1): one that matches much, because that is the slow one."""
FACETED = ("/tasks/", "/runs/")
"""Lists whose facets have an address of their own."""
WORST = 10
"""Addresses that are printed, each with its slowest statement."""
STATEMENT = 1500
"""Characters of a statement that are printed."""


@dataclass(frozen=True, slots=True)
class Timed:
    address: str
    milliseconds: list[float]
    queries: int
    opens: bool
    slowest: str
    """Its slowest statement, with the milliseconds that it took."""

    @property
    def facets(self) -> bool:
        return "/facets/" in self.address

    @property
    def p95(self) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[math.ceil(0.95 * len(ordered)) - 1]

    @property
    def p50(self) -> float:
        return sorted(self.milliseconds)[len(self.milliseconds) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=20, help="measured requests of each address (20)")
    parser.add_argument("--only", default="", help="addresses that begin so")
    parser.add_argument("--kept", action="store_true", help="use the services of the environment, filled if empty")
    arguments = parser.parse_args()
    if arguments.kept:
        measure(arguments)
        return
    with throwaway.services(large=True) as variables:
        os.environ.update(variables)
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "composer_web.settings"
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from composer_web.accounts.models import User
    from tests.bench.web.tables_data import BENCH, Size, fill

    call_command("migrate", verbosity=0)
    began = time.monotonic()
    user = User.objects.filter(username=BENCH).first() or fill(Size(arguments.tasks, arguments.rollouts))
    filled = time.monotonic() - began
    print(f"{arguments.tasks} tasks and {arguments.rollouts} rollouts made in {filled:.0f} s", flush=True)
    from django.test import Client

    from composer_web.warm import warm

    warm()  # as the server does

    visitor = Client()
    visitor.force_login(user)
    timed = [
        ask(visitor, address, opens, arguments) for address, opens in addresses() if address.startswith(arguments.only)
    ]
    timed.sort(key=lambda t: -t.p95)
    lists, facets = [t for t in timed if not t.facets], [t for t in timed if t.facets]
    for each in [*lists[:WORST], *facets[:WORST]]:
        print(f"{each.p95:8.1f} ms p95 {each.p50:8.1f} p50 {each.queries:3d} queries  {each.address}")
        print(f"    {each.slowest}", flush=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (size,) = cursor.fetchone()
    metrics = {
        "p95_ms_max": round(max((t.p95 for t in lists), default=0.0), 1),
        "p95_ms_open": round(max((t.p95 for t in timed if t.opens), default=0.0), 1),
        "p95_ms_facets": round(max((t.p95 for t in facets), default=0.0), 1),
        "p50_ms_max": round(max((t.p50 for t in lists), default=0.0), 1),
        "queries_max": float(max(t.queries for t in timed)),
        "addresses": float(len(timed)),
    }
    conditions = {"tasks": arguments.tasks, "rollouts": arguments.rollouts, "database_mb": size >> 20}
    connection.close()
    report.emit("tables", metrics, goals=GOALS, conditions=conditions)


def addresses() -> Iterator[tuple[str, bool]]:
    """Every way to ask for a list, and whether it is how the page opens."""
    from composer_web.evals.http.filters import EvaluationFilter
    from composer_web.evals.http.tables import EvaluationTable, ReleaseTable
    from composer_web.policies.http.tables import PolicyTable
    from composer_web.repositories.http.tables import EnvironmentTable
    from composer_web.rollouts.http.tables import FindingTable, RolloutTable
    from composer_web.rollouts.search.filters import FindingFilter, RolloutFilter
    from composer_web.runs.http.filters import RunFilter
    from composer_web.runs.http.tables import RunTable
    from composer_web.tasks.curation.facets import OTHERS
    from composer_web.tasks.curation.filters import TaskFilter
    from composer_web.tasks.http.tables import MemberTable, SuiteTable, TaskTable

    yield "/", True
    for path, table, filters in (
        ("/runs/", RunTable, RunFilter),
        ("/rollouts/", RolloutTable, RolloutFilter),
        ("/findings/", FindingTable, FindingFilter),
        ("/tasks/", TaskTable, TaskFilter),
        ("/suites/", SuiteTable, None),
        ("/suites/train/", MemberTable, None),
        ("/environments/", EnvironmentTable, None),
        ("/policies/", PolicyTable, None),
        ("/evaluations/", EvaluationTable, EvaluationFilter),
        ("/evaluations/releases/", ReleaseTable, None),
    ):
        yield path, True
        yield f"{path}?page=100000", False
        for name, column in table.base_columns.items():
            if column.orderable is not False:
                yield f"{path}?sort={name}", False
                yield f"{path}?sort=-{name}", False
        mask_logits = list(_narrowed(filters)) if filters else []
        for query in mask_logits:
            yield f"{path}?{query}", False
        if path in FACETED:
            yield f"{path}facets/", False
            for query in mask_logits:
                yield f"{path}facets/?{query}", False
        if path == "/tasks/":
            for name in OTHERS:
                yield f"{path}facets/?only={name}", False
                for query in mask_logits:
                    yield f"{path}facets/?{query}&only={name}", False


def _narrowed(filters: Any) -> Iterator[str]:
    """The query of each value of each filter."""
    for name, item in filters.base_filters.items():
        choices = item.extra.get("choices")
        listed = [value for value, _ in getattr(choices, "choices", choices) if value] if choices else []
        for value in listed or [SAMPLES.get(name, "1")]:
            yield urlencode({name: value})


def ask(visitor: object, address: str, opens: bool, arguments: argparse.Namespace) -> Timed:
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    assert isinstance(visitor, Client)
    with CaptureQueriesContext(connection) as seen:
        answer = visitor.get(address)
    captured = list(seen.captured_queries)  # the next request empties the log
    assert answer.status_code == 200, f"{address}: {answer.status_code}"
    times = []
    for _ in range(arguments.requests):
        began = time.perf_counter()
        visitor.get(address)
        times.append((time.perf_counter() - began) * 1000)
    slow = max(captured, key=lambda query: float(query["time"]))
    return Timed(
        address, times, len(captured), opens, f"{float(slow['time']) * 1000:.0f} ms  {slow['sql'][:STATEMENT]}"
    )


if __name__ == "__main__":
    main()
