"""How many tasks there are of each kind, beside the filters of the list: each facet counts under all other filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import CharField, Count, F, Func, QuerySet
from django.http import HttpRequest, QueryDict

from composer_web.tasks.filters import BOUNDS, DIFFICULTIES, RATES, STRENGTHS, TaskFilter
from composer_web.tasks.models import ReviewState, Split, Suite, SuiteMembership, Task
from composer_web.tasks.selectors import tasks

MOST = 12
"""Values of a facet that are shown, most tasks first."""
CONTROLS = {True: ("true", "passed"), False: ("false", "rejected"), None: ("none", "not run")}


@dataclass(frozen=True, slots=True)
class Value:
    value: str
    label: str
    count: int
    chosen: bool
    address: str
    """Query string of the list with this value chosen, or given up again."""


@dataclass(frozen=True, slots=True)
class Facet:
    """Values of one filter with the tasks of each; `more` says that some are not shown."""

    name: str
    label: str
    values: tuple[Value, ...]
    more: bool

    @property
    def chosen(self) -> bool:
        """One of its values narrows the list."""
        return any(one.chosen for one in self.values)


def facets(request: HttpRequest) -> list[Facet]:
    """Of the tasks that the list shows at this address. Facets of a column that choose nothing count the same tasks: they
    are counted together, in one walk over them; each of the others takes a query of its own."""
    together = [name for name in COLUMNS if not request.GET.get(name)]
    counted = _together(_narrowed(request.GET, request), together) if together else {}
    found = []
    for name, label in LABELS:
        others = request.GET.copy()
        chosen = others.pop(name, [""])[-1]
        if name in COLUMNS:
            numbers = counted[name] if name in counted else _together(_narrowed(others, request), [name])[name]
            rows = COLUMNS[name][1](numbers)
        else:
            rows = OTHERS[name](_narrowed(others, request))
        values = sorted(rows, key=lambda row: (-row[2], row[1]))
        shown = [
            Value(value, text, number, value == chosen, _address(others, name, "" if value == chosen else value))
            for value, text, number in values[:MOST]
            if number
        ]
        if shown:
            found.append(Facet(name, label, tuple(shown), len(values) > MOST))
    return found


def _narrowed(given: QueryDict, request: HttpRequest) -> QuerySet[Task]:
    return TaskFilter(given, queryset=tasks(), request=request).qs.order_by()


def _together(query: QuerySet[Task], names: list[str]) -> dict[str, Numbers]:
    """Tasks by value, of each of these facets."""
    counts: dict[str, Numbers] = {name: {} for name in names}
    for *values, number in query.values_list(*(COLUMNS[name][0] for name in names)).annotate(n=Count("*")):
        for name, value in zip(names, values, strict=True):
            counts[name][value] = counts[name].get(value, 0) + number
    return counts


def _address(others: QueryDict, name: str, value: str) -> str:
    query = others.copy()
    query.pop("page", None)
    if value:
        query[name] = value
    return f"?{query.urlencode()}"


Rows = list[tuple[str, str, int]]
"""Value in the address, what people read, tasks."""


Numbers = dict[Any, int]
"""Value of a column → tasks."""


def _plain(numbers: Numbers) -> Rows:
    return [(str(value), str(value), number) for value, number in numbers.items()]


def _controls(numbers: Numbers) -> Rows:
    return [(*CONTROLS[value], number) for value, number in numbers.items()]


def _review(numbers: Numbers) -> Rows:
    return [(state, ReviewState(state).label, number) for state, number in numbers.items()]


def _split(numbers: Numbers) -> Rows:
    return [(side or "none", Split(side).label if side else "no side", number) for side, number in numbers.items()]


def _strength(query: QuerySet[Task]) -> Rows:
    counts = dict.fromkeys([name for name, _ in STRENGTHS], 0)
    for value, number in query.values_list("test_strength").annotate(n=Count("pk")):
        counts[strength_class(value)] += number
    return [(name, label, counts[name]) for name, label in STRENGTHS]


def _difficulty(query: QuerySet[Task]) -> Rows:
    counts = query.aggregate(**{name: Count("pk", filter=rates) for name, rates in RATES.items()})
    return [(name, label, counts[name]) for name, label in DIFFICULTIES]


def strength_class(value: float | None) -> str:
    """Which class of STRENGTHS a share belongs to."""
    if value is None:
        return "unknown"
    return next(name for name, (low, high) in BOUNDS.items() if low <= value < high)


def _tags(query: QuerySet[Task]) -> Rows:
    tagged = query.exclude(tags=[]).annotate(tag=Func(F("tags"), function="unnest", output_field=CharField()))
    return [(tag, tag, number) for tag, number in tagged.values_list("tag").annotate(n=Count("pk"))]


def _suites(query: QuerySet[Task]) -> Rows:
    members = SuiteMembership.objects.order_by()
    if query.query.where:  # of all tasks, an index of the members alone has the answer
        members = members.filter(task__in=query.values("pk"))
    counts = dict(members.values_list("suite").annotate(n=Count("task", distinct=True)))
    return [(name, name, counts[pk]) for pk, name in Suite.objects.filter(pk__in=counts).values_list("pk", "name")]


def _findings(query: QuerySet[Task]) -> Rows:
    from composer_web.rollouts.models import Finding

    found = Finding.objects.exclude(state="dismissed").exclude(slug="")
    if query.query.where:
        found = found.filter(slug__in=query.values("slug"))
    rows = found.order_by().values_list("rule").annotate(n=Count("slug", distinct=True))
    return [(rule, rule, number) for rule, number in rows]


COLUMNS: dict[str, tuple[str, Callable[[Numbers], Rows]]] = {
    "source": ("source", _plain),
    "category": ("category", _plain),
    "controls": ("controls_ok", _controls),
    "review": ("review", _review),
    "split": ("split", _split),
}
"""Facets that are a column with few values: the column, and how its values read."""
OTHERS: dict[str, Callable[[QuerySet[Task]], Rows]] = {
    "difficulty": _difficulty,
    "strength": _strength,
    "tag": _tags,
    "suite": _suites,
    "finding": _findings,
}
LABELS = (
    ("source", "Source"),
    ("category", "Category"),
    ("difficulty", "Difficulty"),
    ("controls", "Controls"),
    ("strength", "Hidden tests"),
    ("review", "Review"),
    ("split", "Side"),
    ("tag", "Tags"),
    ("suite", "Suites"),
    ("finding", "Findings"),
)
"""All of them, in the order of the page."""
