"""How many tasks there are of each kind, beside the filters of the list: each facet counts under all other filters."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import CharField, Count, F, Func, QuerySet
from django.http import HttpRequest, QueryDict

from composer_web.tasks.filters import BOUNDS, DIFFICULTIES, RATES, STRENGTHS, TaskFilter
from composer_web.tasks.models import ReviewState, Split, SuiteMembership, Task
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
    """Of the tasks that the list shows at this address. One query a facet."""
    found = []
    for name, label, count in (
        ("source", "Source", _plain("source")),
        ("category", "Category", _plain("category")),
        ("difficulty", "Difficulty", _difficulty),
        ("controls", "Controls", _controls),
        ("strength", "Hidden tests", _strength),
        ("review", "Review", _review),
        ("split", "Side", _split),
        ("tag", "Tags", _tags),
        ("suite", "Suites", _suites),
        ("finding", "Findings", _findings),
    ):
        others = request.GET.copy()
        chosen = others.pop(name, [""])[-1]
        rows = count(TaskFilter(others, queryset=tasks(), request=request).qs.order_by())
        values = sorted(rows, key=lambda row: (-row[2], row[1]))
        shown = [
            Value(value, text, number, value == chosen, _address(others, name, "" if value == chosen else value))
            for value, text, number in values[:MOST]
            if number
        ]
        if shown:
            found.append(Facet(name, label, tuple(shown), len(values) > MOST))
    return found


def _address(others: QueryDict, name: str, value: str) -> str:
    query = others.copy()
    query.pop("page", None)
    if value:
        query[name] = value
    return f"?{query.urlencode()}"


Rows = list[tuple[str, str, int]]
"""Value in the address, what people read, tasks."""


def _plain(column: str):  # type: ignore[no-untyped-def]
    def count(query: QuerySet[Task]) -> Rows:
        rows = query.values_list(column).annotate(n=Count("pk"))
        return [(str(value), str(value), number) for value, number in rows]

    return count


def _controls(query: QuerySet[Task]) -> Rows:
    return [(*CONTROLS[value], number) for value, number in query.values_list("controls_ok").annotate(n=Count("pk"))]


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


def _review(query: QuerySet[Task]) -> Rows:
    return [
        (state, ReviewState(state).label, number)
        for state, number in query.values_list("review").annotate(n=Count("pk"))
    ]


def _split(query: QuerySet[Task]) -> Rows:
    rows = query.values_list("split").annotate(n=Count("pk"))
    return [(side or "none", Split(side).label if side else "no side", number) for side, number in rows]


def _tags(query: QuerySet[Task]) -> Rows:
    tagged = query.exclude(tags=[]).annotate(tag=Func(F("tags"), function="unnest", output_field=CharField()))
    return [(tag, tag, number) for tag, number in tagged.values_list("tag").annotate(n=Count("pk"))]


def _suites(query: QuerySet[Task]) -> Rows:
    members = SuiteMembership.objects.filter(task__in=query.values("pk"))
    rows = members.order_by().values_list("suite__name").annotate(n=Count("task", distinct=True))
    return [(name, name, number) for name, number in rows]


def _findings(query: QuerySet[Task]) -> Rows:
    from composer_web.rollouts.models import Finding

    found = Finding.objects.exclude(state="dismissed").filter(task_version__task__in=query.values("pk"))
    rows = found.order_by().values_list("rule").annotate(n=Count("task_version__task", distinct=True))
    return [(rule, rule, number) for rule, number in rows]
