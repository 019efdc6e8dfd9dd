"""Who uses which policy versions now: production, unfinished runs and evaluations, continued rollouts, measurements."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Q, QuerySet

from composer_web.evals.models import Evaluation, EvaluationState
from composer_web.policies.in_use import Use
from composer_web.policies.models import ORDER_OPEN, MeasurementOrder, Policy, Promotion
from composer_web.policies.promotion.services import current, holder, previous
from composer_web.rollouts.models import GROUP_OPEN, Fork
from composer_web.runs.models import RUN_LIVE, Run


def uses_of(policy: Policy) -> Iterator[Use]:
    """Uses of versions of this policy."""
    channels = Promotion.objects.filter(Q(policy=policy) | Q(canary_policy=policy))
    forks = Fork.objects.filter(reference__startswith=f"{policy.name}@")
    for use in _uses(channels, forks):
        if use.policy_id == policy.pk:
            yield use


def uses() -> Iterator[Use]:
    """Every use. A draft uses nothing yet: it is checked again when it is started."""
    yield from _uses(Promotion.objects.all(), Fork.objects.exclude(reference=""))


def _uses(promotions: QuerySet[Promotion], forks: QuerySet[Fork]) -> Iterator[Use]:
    for channel in promotions.order_by().values_list("channel", flat=True).distinct():
        now, before = current(channel), previous(channel)
        assert now is not None, "the channel is that of a row"
        yield Use(now.policy_id, now.version, holder(channel))
        if now.canary_policy_id is not None and now.canary_version is not None:
            yield Use(now.canary_policy_id, now.canary_version, holder(channel))
        if before is not None:
            yield Use(before[0].pk, before[1], holder(channel))
    runs = Run.objects.filter(state__in=RUN_LIVE).values_list("policy_in_id", "policy_in_version", "pk")
    for policy, version, pk in runs.order_by():
        yield Use(policy, version, f"run-{pk}")
    evaluations = Evaluation.objects.filter(run=None, state__in=(EvaluationState.PENDING, EvaluationState.RUNNING))
    for policy, version, pk in evaluations.order_by().values_list("policy_id", "version", "pk"):
        yield Use(policy, version, f"evaluation-{pk}")
    orders = MeasurementOrder.objects.filter(state__in=ORDER_OPEN).order_by()
    for policy, version, pk in orders.values_list("policy_id", "version", "pk"):
        yield Use(policy, version, f"measurement-{pk}")
    forked = forks.filter(group__state__in=GROUP_OPEN).order_by()
    for reference, pk in forked.values_list("reference", "pk"):
        name, _, number = reference.rpartition("@")
        for owner in Policy.objects.filter(name=name).values_list("pk", flat=True):
            yield Use(owner, int(number), f"fork-{pk}")
