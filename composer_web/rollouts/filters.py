"""The filters of rollouts and findings: one set each for page, API, export and CLI."""

from __future__ import annotations

import django_filters as filters
from django.db.models import Subquery

from composer_web.ops.filters import slug_contains
from composer_web.rollouts import fulltext
from composer_web.rollouts.auditing import RULE_TITLES
from composer_web.rollouts.models import Finding, FindingState, Group, Rollout
from sandbox.harness.types import StopReason

VERDICTS = [("passed", "passed"), ("failed", "failed"), ("infra_error", "infra error")]
STOPS = [(reason.value, reason.value.replace("_", " ")) for reason in StopReason]


class RolloutFilter(filters.FilterSet):
    run = filters.NumberFilter(field_name="run_id", method="by_owner", label="Run")
    evaluation = filters.NumberFilter(field_name="evaluation_id", method="by_owner", label="Evaluation")
    task = filters.CharFilter(field_name="group__task_version__task__slug", method=slug_contains, label="Task")
    verdict = filters.ChoiceFilter(choices=VERDICTS, label="Verdict", empty_label="any")
    stop_reason = filters.ChoiceFilter(choices=STOPS, label="Stop reason", empty_label="any")
    reward_min = filters.NumberFilter(field_name="reward", lookup_expr="gte", label="Reward ≥")
    reward_max = filters.NumberFilter(field_name="reward", lookup_expr="lte", label="Reward ≤")
    version = filters.NumberFilter(field_name="oldest_version", label="Policy version")
    label = filters.CharFilter(method="by_label", label="Label")
    text = filters.CharFilter(method="by_text", label="Text", max_length=fulltext.LONGEST)

    class Meta:
        model = Rollout
        fields = [
            "text",
            "run",
            "evaluation",
            "task",
            "verdict",
            "stop_reason",
            "reward_min",
            "reward_max",
            "version",
            "label",
        ]

    def by_text(self, query, name, value):  # type: ignore[no-untyped-def]
        """Words of the trajectory: `words`, `"a phrase"`, `one OR other`, `-without`."""
        return fulltext.holding(query, value)

    def by_label(self, query, name, value):  # type: ignore[no-untyped-def]
        """What somebody labelled in a review queue: `queue:question=value`, or `queue`."""
        from composer_web.review.selectors import labelled_rollouts

        return labelled_rollouts(query, value)

    def by_owner(self, query, name, value):  # type: ignore[no-untyped-def]
        """Of one run or evaluation. Rollouts come with their group, so their ids lie between those of its first and its
        last group: without these bounds Postgres walks through everything newer to show the newest of an old run."""
        groups = Group.objects.filter(**{name: value})
        rows = Rollout.objects.order_by("pk").values("pk")
        first = rows.filter(group=Subquery(groups.order_by("prompt_index").values("pk")[:1]))[:1]
        last = rows.filter(group=Subquery(groups.order_by("-prompt_index").values("pk")[:1])).reverse()[:1]
        return query.filter(**{f"group__{name}": value}, pk__gte=Subquery(first), pk__lte=Subquery(last))


class FindingFilter(filters.FilterSet):
    rule = filters.ChoiceFilter(choices=sorted((rule, rule) for rule in RULE_TITLES), label="Rule", empty_label="any")
    severity = filters.ChoiceFilter(
        choices=[("high", "high"), ("medium", "medium"), ("low", "low")], label="Severity", empty_label="any"
    )
    state = filters.ChoiceFilter(choices=FindingState.choices, label="State", empty_label="any")
    subject = filters.ChoiceFilter(
        choices=[("rollout", "rollout"), ("group", "group"), ("task", "task"), ("run", "run")],
        label="About",
        empty_label="any",
    )
    run = filters.NumberFilter(field_name="run_id", label="Run")
    task = filters.CharFilter(field_name="slug", method=slug_contains, label="Task")
    quarantined = filters.TypedChoiceFilter(
        choices=[("", "any"), ("true", "yes"), ("false", "no")],
        coerce=lambda value: value == "true",
        empty_value="",
        label="In quarantine",
    )

    class Meta:
        model = Finding
        fields = ["rule", "severity", "state", "subject", "run", "task", "quarantined"]
