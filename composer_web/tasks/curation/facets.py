"""Facet counts beside the filters of the task list. Each facet applies all other filters."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from django.db.models import Case, CharField, Count, F, Func, Q, QuerySet, When
from django.db.models import Value as Constant
from django.db.models.expressions import Combinable
from django.http import HttpRequest, QueryDict

from composer_web.tasks.curation.filters import DIFFICULTIES, RATES, SHARES, STRENGTHS, TaskFilter
from composer_web.tasks.models import ReviewState, Split, Suite, SuiteMembership, Task
from composer_web.tasks.selectors import tasks
from composer_web.ui.facets import Facet, facet, others
from composer_web.ui.filters import strict

CONTROLS = {True: ("true", "passed"), False: ("false", "rejected"), None: ("none", "not run")}


def facets(request: HttpRequest, names: Collection[str] | None = None) -> list[Facet]:
    """Facets of the tasks that the list shows at this URL: all, or those in `names`. Facets on the task's own row
    with no chosen value count the same tasks, so one query counts them together. Each other facet takes a query
    of its own."""
    wanted = [(name, label) for name, label in LABELS if names is None or name in names]
    together = [name for name, _ in wanted if name in OWN and not request.GET.get(name)]
    counted = _together(_narrowed(request.GET, request), together) if together else {}
    found = []
    for name, label in wanted:
        rest, chosen = others(request.GET, name)
        if name in OWN:
            numbers = counted[name] if name in counted else _together(_narrowed(rest, request), [name])[name]
            rows = OWN[name][1](numbers)
        else:
            rows = OTHERS[name](_narrowed(rest, request))
        if (one := facet(name, label, rows, rest=rest, chosen=chosen)) is not None:
            found.append(one)
    return found


def _narrowed(given: QueryDict, request: HttpRequest) -> QuerySet[Task]:
    return strict(TaskFilter, given, queryset=tasks(), request=request).qs.order_by()


def _together(query: QuerySet[Task], names: list[str]) -> dict[str, Numbers]:
    """Tasks by value, of each of these facets."""
    counts: dict[str, Numbers] = {name: {} for name in names}
    classes = {f"{name}_class": OWN[name][0] for name in names}
    for *values, number in query.annotate(**classes).values_list(*classes).annotate(n=Count("*")):
        for name, value in zip(names, values, strict=True):
            counts[name][value] = counts[name].get(value, 0) + number
    return counts


Rows = list[tuple[str, str, int]]
"""Value in the address, what people read, tasks."""


Numbers = dict[Any, int]
"""Value of a column, or a class of its values → tasks."""


def _plain(numbers: Numbers) -> Rows:
    return [(str(value), str(value), number) for value, number in numbers.items()]


def _controls(numbers: Numbers) -> Rows:
    return [(*CONTROLS[value], number) for value, number in numbers.items()]


def _review(numbers: Numbers) -> Rows:
    return [(state, ReviewState(state).label, number) for state, number in numbers.items()]


def _split(numbers: Numbers) -> Rows:
    return [(side or "none", Split(side).label if side else "no split", number) for side, number in numbers.items()]


def _strength(numbers: Numbers) -> Rows:
    return [(name, label, numbers.get(name, 0)) for name, label in STRENGTHS]


def _difficulty(numbers: Numbers) -> Rows:
    return [(name, label, numbers.get(name, 0)) for name, label in DIFFICULTIES]


def _class(conditions: dict[str, Q]) -> Case:
    """The name of the first condition that a task meets."""
    return Case(*(When(condition, then=Constant(name)) for name, condition in conditions.items()))


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


OWN: dict[str, tuple[Combinable, Callable[[Numbers], Rows]]] = {
    "source": (F("source"), _plain),
    "category": (F("category"), _plain),
    "difficulty": (_class(RATES), _difficulty),
    "controls": (F("controls_ok"), _controls),
    "strength": (_class(SHARES), _strength),
    "review": (F("review"), _review),
    "split": (F("split"), _split),
}
"""Facets of a task's own row: a column with few values or classes of its values, and how they read."""
OTHERS: dict[str, Callable[[QuerySet[Task]], Rows]] = {
    "tag": _tags,
    "suite": _suites,
    "finding": _findings,
}
LABELS: tuple[tuple[str, str], ...] = (
    ("source", "Source"),
    ("category", "Category"),
    ("difficulty", "Difficulty"),
    ("controls", "Validation"),
    ("strength", "Hidden tests"),
    ("review", "Review"),
    ("split", "Split"),
    ("tag", "Tags"),
    ("suite", "Suites"),
    ("finding", "Findings"),
)
"""All of them, in the order of the page."""


def unasked(request: HttpRequest) -> list[tuple[str, str]]:
    """Facets with a query of their own that choose nothing, by name and label: the page counts one when it is opened."""
    return [(name, label) for name, label in LABELS if name in OTHERS and not request.GET.get(name)]
