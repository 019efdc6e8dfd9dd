"""Celery tasks of evaluations: thin, idempotent."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from composer_web.evals import services
from composer_web.evals.models import Evaluation
from composer_web.evals.scoring import score
from composer_web.ops.outbox import enqueue
from composer_web.rollouts.models import GROUP_OPEN, Rollout
from composer_web.rollouts.services import dispatch_evaluation
from composer_web.tasks.selectors import first_versions


@shared_task(name="evals.start")
def start(*, evaluation_id: int, **_: Any) -> None:
    """Dispatch every group of a pending evaluation."""
    with transaction.atomic():
        evaluation = (
            Evaluation.objects.select_for_update(of=("self",)).select_related("suite", "run").get(pk=evaluation_id)
        )
        if evaluation.state == "pending":
            services.mark_running(evaluation=evaluation)
            dispatch_evaluation(evaluation=evaluation, version_ids=first_versions(evaluation.suite, evaluation.tasks))


@shared_task(name="evals.advance")
def advance(*, evaluation_id: int, **_: Any) -> None:
    """Close an evaluation whose groups have all ended."""
    with transaction.atomic():
        evaluation = (
            Evaluation.objects.select_for_update(of=("self",))
            .select_related("suite", "run", "policy")
            .get(pk=evaluation_id)
        )
        if evaluation.state != "running" or evaluation.groups.filter(state__in=GROUP_OPEN).exists():
            return
        passes: dict[int, list[bool]] = {pk: [] for pk in evaluation.groups.values_list("pk", flat=True)}
        lost = 0
        for group_id, verdict in Rollout.objects.filter(group__evaluation=evaluation).values_list(
            "group_id", "verdict"
        ):
            if verdict == "infra_error":
                lost += 1
            else:
                passes[group_id].append(verdict == "passed")
        began = evaluation.started_at or evaluation.created_at
        seconds = (timezone.now() - began).total_seconds()
        results = score(list(passes.values()), samples=evaluation.samples, lost=lost, seconds=round(seconds, 1))
        if results["pass1"] is None:
            services.mark_failed(evaluation=evaluation, cause=_why_nothing(evaluation))
        else:
            services.mark_finished(evaluation=evaluation, results=results)
            enqueue("tasks.record_statistics", {"evaluation_id": evaluation.pk}, queue="control")
        enqueue("rollouts.drop_open", {"evaluation_id": evaluation.pk}, queue="control")


def _why_nothing(evaluation: Evaluation) -> str:
    """The commonest cause of its groups' end, in words."""
    causes = evaluation.groups.exclude(cause="").values_list("cause").annotate(n=Count("pk")).order_by("-n")
    cause = causes.values_list("cause", flat=True).first()
    return f"no rollout has a verdict: {cause}" if cause else "no rollout has a verdict; see the causes of its groups"


@shared_task(name="evals.cancel_of_run")
def cancel_of_run(*, run_id: int, **_: Any) -> None:
    for evaluation in Evaluation.objects.filter(run_id=run_id, state__in=["pending", "running"]):
        services.cancel(evaluation=evaluation)
