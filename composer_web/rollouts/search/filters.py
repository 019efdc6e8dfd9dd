"""Filters of rollouts and findings, shared by page, API, export and CLI."""

from __future__ import annotations

import django_filters as filters
from django.db.models import Exists, OuterRef, Q, Subquery

from composer_web.rollouts.finding_rules import RULE_TITLES
from composer_web.rollouts.models import Finding, FindingState, Group, Quarantine, Rollout
from composer_web.rollouts.review_hooks import review
from composer_web.rollouts.search import fulltext
from composer_web.ui.filters import slug_contains
from composer_web.ui.named import RUN, NamedFilter
from sandbox.harness.types import StopReason

OPEN = "open"
"""Filter value for rollouts that have no verdict yet."""
VERDICTS = [("passed", "passed"), ("failed", "failed"), ("infra_error", "infra error"), (OPEN, "none yet: open")]
STOPS = [(reason.value, reason.value.replace("_", " ")) for reason in StopReason]


class RolloutFilter(filters.FilterSet):
    run = NamedFilter(field_name="run_id", method="by_owner", label="Run", **RUN)
    evaluation = filters.NumberFilter(field_name="evaluation_id", method="by_owner", label="Evaluation")
    task = filters.CharFilter(field_name="group__task_version__task__slug", method=slug_contains, label="Task")
    verdict = filters.ChoiceFilter(choices=VERDICTS, method="by_verdict", label="Verdict", empty_label="any")
    stop_reason = filters.ChoiceFilter(choices=STOPS, label="Stop reason", empty_label="any")
    reward_min = filters.NumberFilter(field_name="reward", lookup_expr="gte", label="Reward ≥")
    reward_max = filters.NumberFilter(field_name="reward", lookup_expr="lte", label="Reward ≤")
    version = filters.NumberFilter(field_name="oldest_version", label="Policy version")
    label = filters.CharFilter(method="by_label", label="Label")
    annotation = filters.CharFilter(method="by_annotation", label="Annotation")
    finding = filters.ChoiceFilter(
        choices=[("any", "some"), ("none", "none"), *sorted((rule, rule) for rule in RULE_TITLES)],
        method="by_finding",
        label="Finding",
        empty_label="any",
    )
    quarantined = filters.ChoiceFilter(
        choices=[("true", "yes"), ("false", "no")], method="by_quarantine", label="In quarantine", empty_label="any"
    )
    tool_errors_min = filters.NumberFilter(field_name="tool_errors", lookup_expr="gte", label="Tool errors ≥")
    tool_errors_max = filters.NumberFilter(field_name="tool_errors", lookup_expr="lte", label="Tool errors ≤")
    turns_min = filters.NumberFilter(field_name="turns", lookup_expr="gte", label="Turns ≥")
    turns_max = filters.NumberFilter(field_name="turns", lookup_expr="lte", label="Turns ≤")
    tokens_min = filters.NumberFilter(field_name="output_tokens", lookup_expr="gte", label="Output tokens ≥")
    tokens_max = filters.NumberFilter(field_name="output_tokens", lookup_expr="lte", label="Output tokens ≤")
    step_min = filters.NumberFilter(field_name="group__consumed_step", lookup_expr="gte", label="Trained in step ≥")
    step_max = filters.NumberFilter(field_name="group__consumed_step", lookup_expr="lte", label="Trained in step ≤")
    more = frozenset(
        f"{name}_{end}" for name in ("tool_errors", "turns", "tokens", "step") for end in ("min", "max")
    ) | {"version", "label", "annotation"}
    """Filters behind "More filters"."""
    chips = (
        ("With findings", "finding", "any"),
        ("In quarantine", "quarantined", "true"),
        ("Tool errors", "tool_errors_min", "1"),
        ("Trained on", "step_min", "1"),
        ("Needs review", "annotation", "needs_review"),
        ("Assigned to me", "annotation", "assignee=me"),
    )
    """One-click filters: (label, filter, value)."""
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
            "finding",
            "quarantined",
            "version",
            "label",
            "annotation",
            "tool_errors_min",
            "tool_errors_max",
            "turns_min",
            "turns_max",
            "tokens_min",
            "tokens_max",
            "step_min",
            "step_max",
        ]

    @property
    def more_are_set(self) -> bool:
        prefix = f"{self.form_prefix}-" if self.form_prefix else ""
        return any(self.data.get(prefix + name) for name in self.more)

    def by_verdict(self, query, name, value):  # type: ignore[no-untyped-def]
        return query.filter(verdict="" if value == OPEN else value)

    def by_finding(self, query, name, value):  # type: ignore[no-untyped-def]
        """Rollouts with a finding that is not dismissed, of any or of one rule, or rollouts without one."""
        found = Finding.objects.filter(review().visible_findings(), rollout=OuterRef("pk"), subject="rollout")
        found = found.exclude(state="dismissed")
        if value not in ("any", "none"):
            found = found.filter(rule=value)
        return query.filter(~Exists(found) if value == "none" else Exists(found))

    def by_quarantine(self, query, name, value):  # type: ignore[no-untyped-def]
        """Rollouts currently excluded from training."""
        held = Q(
            Exists(Quarantine.objects.filter(rollout=OuterRef("pk"), state="active"))
        ) & review().visible_quarantines("pk")
        return query.filter(held if value == "true" else ~held)

    def by_text(self, query, name, value):  # type: ignore[no-untyped-def]
        """Full-text search of the trajectory: `words`, `"a phrase"`, `one OR other`, `-without`."""
        return fulltext.holding(query, value)

    def by_label(self, query, name, value):  # type: ignore[no-untyped-def]
        """Labels from a review queue: `queue:question=value`, or `queue`."""
        return review().labelled_rollouts(query, value)

    def by_annotation(self, query, name, value):  # type: ignore[no-untyped-def]
        """Annotations on the trajectory's page: `verdict=bad`, `tag=x`, `needs_review`, `assignee=me`, `comment`, `none`."""
        return review().annotated_rollouts(query, value)

    def by_owner(self, query, name, value):  # type: ignore[no-untyped-def]
        """Filter by run or evaluation. A group creates its rollouts together, so a run's rollout ids lie between
        those of its first and last group. Without these bounds, Postgres scans everything newer to find the
        newest rollouts of an old run."""
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
    run = NamedFilter(field_name="run_id", label="Run", **RUN)
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
