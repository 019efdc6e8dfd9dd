"""Filters of tasks, shared by page, API, export and CLI."""

from __future__ import annotations

from typing import get_args

import django_filters as filters
from django.db.models import Exists, OuterRef, Q, QuerySet

from composer_web.core.errors import UserError
from composer_web.tasks.curation import admission
from composer_web.tasks.models import ReviewState, Split, Suite, SuiteMembership, Task, TaskReview
from composer_web.ui.filters import WrongFilter, slug_contains
from sandbox.tasks.spec import Category, TaskSource

CONTROLS = [("true", "passed"), ("false", "rejected"), ("none", "not run")]
SOURCES = [(name, name) for name in get_args(TaskSource)]
CATEGORIES = [(name, name) for name in get_args(Category)]
STRENGTHS = [
    ("weak", "weak: under 50 %"),
    ("fair", "fair: 50 to 80 %"),
    ("good", "good: 80 to 95 %"),
    ("strong", "strong: from 95 %"),
    ("unknown", "not measured"),
]
"""Classes of the share of mutants that the hidden tests reject."""
SHARES: dict[str, Q] = {
    "weak": Q(test_strength__lt=0.5),
    "fair": Q(test_strength__gte=0.5, test_strength__lt=0.8),
    "good": Q(test_strength__gte=0.8, test_strength__lt=0.95),
    "strong": Q(test_strength__gte=0.95),
    "unknown": Q(test_strength__isnull=True),
}
DIFFICULTIES = [
    ("never", "never solved"),
    ("hard", "hard: under 25 %"),
    ("middle", "25 to 75 %"),
    ("easy", "easy: from 75 %"),
    ("always", "always solved"),
    ("unknown", "not measured"),
]
"""Classes of the pass rate that the newest version showed when it was last measured, by whichever policy."""
RATES: dict[str, Q] = {
    "never": Q(pass_rate=0),
    "hard": Q(pass_rate__gt=0, pass_rate__lt=0.25),
    "middle": Q(pass_rate__gte=0.25, pass_rate__lt=0.75),
    "easy": Q(pass_rate__gte=0.75, pass_rate__lt=1),
    "always": Q(pass_rate=1),
    "unknown": Q(pass_rate__isnull=True),
}


class TaskFilter(filters.FilterSet):
    """Over `selectors.tasks()`. "My review" is that of who sends the `request`."""

    q = filters.CharFilter(field_name="slug", method=slug_contains, label="Search")
    source = filters.ChoiceFilter(choices=SOURCES, label="Source", empty_label="any")
    category = filters.ChoiceFilter(choices=CATEGORIES, label="Category", empty_label="any")
    suite = filters.CharFilter(method="by_suite", label="Suite")
    controls = filters.ChoiceFilter(choices=CONTROLS, method="by_controls", label="Validation", empty_label="any")
    strength = filters.ChoiceFilter(choices=STRENGTHS, method="by_strength", label="Hidden tests", empty_label="any")
    difficulty = filters.ChoiceFilter(
        choices=DIFFICULTIES, method="by_difficulty", label="Difficulty", empty_label="any"
    )
    strength_max = filters.NumberFilter(
        field_name="test_strength", lookup_expr="lte", label="Test strength at most", min_value=0, max_value=1
    )
    review = filters.ChoiceFilter(choices=ReviewState.choices, label="Review", empty_label="any")
    mine = filters.ChoiceFilter(
        choices=[("accept", "I accepted"), ("reject", "I rejected"), ("none", "without one")],
        method="by_mine",
        label="My review",
        empty_label="any",
    )
    split = filters.ChoiceFilter(
        choices=[*Split.choices, ("none", "no split")], method="by_split", label="Split", empty_label="any"
    )
    tag = filters.CharFilter(method="by_tag", label="Tag")
    finding = filters.CharFilter(method="by_finding", label="Finding")
    left_out = filters.CharFilter(method="by_left_out", label="Left out of")

    class Meta:
        model = Task
        fields = [
            "q",
            "source",
            "category",
            "suite",
            "controls",
            "strength",
            "difficulty",
            "strength_max",
            "review",
            "mine",
        ]

    def by_controls(self, query, name, value):  # type: ignore[no-untyped-def]
        wanted = {"true": True, "false": False, "none": None}[value]
        return query.filter(controls_ok__isnull=True) if wanted is None else query.filter(controls_ok=wanted)

    def by_suite(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        # Its id first: knowing the suite, Postgres stops counting early; by a join it walks through everything.
        suite = Suite.objects.filter(name=value).values_list("pk", flat=True).first()
        members = SuiteMembership.objects.filter(suite_id=suite or 0, task=OuterRef("pk"))
        return query.filter(Exists(members))

    def by_strength(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        return query.filter(SHARES[value])

    def by_difficulty(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        return query.filter(RATES[value])

    def by_split(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        return query.filter(split="" if value == "none" else value)

    def by_tag(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        return query.filter(tags__contains=[value])

    def by_finding(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        """Tasks with a finding of this rule on one of their versions or rollouts that nobody dismissed."""
        from composer_web.rollouts.models import Finding

        found = Finding.objects.exclude(state="dismissed").filter(task_version__task=OuterRef("pk"))
        return query.filter(Exists(found if value == "any" else found.filter(rule=value)))

    def by_left_out(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        """`SUITE:REASON`: tasks that cannot join a suite, as the queue into it counts them."""
        suite_name, _, reason = value.rpartition(":")
        suite = Suite.objects.filter(name=suite_name).first()
        if suite is None:
            raise WrongFilter(name, f"{name} is SUITE:REASON; there is no suite {suite_name[:80]!r}")
        try:
            return admission.left_out_by(query, suite, reason)[1]
        except UserError as error:
            raise WrongFilter(name, f"{name}: {error}") from error

    def by_mine(self, query: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        person = getattr(self.request, "auth", None) or self.request.user  # a token's owner, or who is logged in
        # One person has reviewed few of many tasks: the reviews are read once, not those of each task.
        later = TaskReview.objects.filter(task_version=OuterRef("task_version"), reviewer=person, pk__gt=OuterRef("pk"))
        newest = TaskReview.objects.filter(~Exists(later), task_version=OuterRef("newest_version_id"), reviewer=person)
        if value == "none":
            return query.filter(~Exists(newest.exclude(decision="withdrawn")))
        return query.filter(Exists(newest.filter(decision=value)))
