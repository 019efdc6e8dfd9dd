"""Celery tasks of evaluations: short and idempotent."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from composer_web.core.queue.outbox import enqueue, enqueue_many
from composer_web.core.queue.work import task
from composer_web.evals import services
from composer_web.evals.models import Evaluation, Release
from composer_web.evals.results import behaviour_scores, prepass
from composer_web.evals.results.contamination import check
from composer_web.evals.results.scoring import Spent, resources, score
from composer_web.rollouts.dispatch.services import dispatch_evaluation
from composer_web.rollouts.models import GROUP_OPEN, Group, Rollout
from composer_web.tasks.selectors import first_versions

log = logging.getLogger(__name__)


@task("evals.start", queue="control", seconds=300)
def start(*, evaluation_id: int, **_: Any) -> None:
    """Dispatch every group of a pending evaluation."""
    with transaction.atomic():
        evaluation = (
            Evaluation.objects.select_for_update(of=("self",))
            .select_related("suite", "run", "release")
            .get(pk=evaluation_id)
        )
        if evaluation.state == "pending":
            services.mark_running(evaluation=evaluation)
            ids = (
                list(evaluation.release.members.order_by("position").values_list("task_version_id", flat=True))
                if evaluation.release
                else first_versions(evaluation.suite, evaluation.tasks)
            )
            dispatch_evaluation(evaluation=evaluation, version_ids=ids)


@task("evals.advance", queue="control", seconds=300)
def advance(*, evaluation_id: int, **_: Any) -> None:
    """Close an evaluation once all its groups have ended."""
    with transaction.atomic():
        evaluation = (
            Evaluation.objects.select_for_update(of=("self",))
            .select_related("suite", "run", "policy")
            .get(pk=evaluation_id)
        )
        if evaluation.state != "running" or evaluation.groups.filter(state__in=GROUP_OPEN).exists():
            return
        passes: dict[int, list[bool]] = {pk: [] for pk in evaluation.groups.values_list("pk", flat=True)}
        lost, spent, stops = 0, [], Counter[str]()
        rows = Rollout.objects.filter(group__evaluation=evaluation).values_list(
            "group_id",
            "verdict",
            "output_tokens",
            "total_tokens",
            "input_tokens",
            "cached_tokens",
            "seconds",
            "stop_reason",
        )
        for group_id, verdict, written, whole, read, cached, waited, stop in rows:
            if verdict == "infra_error":
                lost += 1
            else:
                passes[group_id].append(verdict == "passed")
                stops[stop] += 1
                read = whole - written if read is None else read
                spent.append(Spent(written, read, cached or 0, waited.get("total")))
        began = evaluation.started_at or evaluation.created_at
        seconds = (timezone.now() - began).total_seconds()
        results = score(list(passes.values()), samples=evaluation.samples, lost=lost, seconds=round(seconds, 1))
        results |= resources(spent, price=evaluation.conditions.get("price", {}))
        results["stop_reasons"] = dict(stops.most_common())
        if results["pass1"] is None:
            services.mark_failed(evaluation=evaluation, cause=_why_nothing(evaluation))
        else:
            services.mark_finished(evaluation=evaluation, results=results)
            enqueue("evals.grade", {"evaluation_id": evaluation.pk}, queue="control")
            if evaluation.interruption is None:
                enqueue("tasks.record_statistics", {"evaluation_id": evaluation.pk}, queue="maintenance")
        enqueue("rollouts.drop_open", {"evaluation_id": evaluation.pk}, queue="maintenance")


def _why_nothing(evaluation: Evaluation) -> str:
    """Most frequent cause of its groups' end, as text."""
    causes = evaluation.groups.exclude(cause="").values_list("cause").annotate(n=Count("pk")).order_by("-n")
    cause = causes.values_list("cause", flat=True).first()
    return f"no rollout has a verdict: {cause}" if cause else "no rollout has a verdict; see the causes of its groups"


@task("evals.grade", queue="control", seconds=120)
def grade(*, evaluation_id: int, **_: Any) -> None:
    """Compute behaviour scores of a finished evaluation, one message per group, because graders are slow."""
    groups = Evaluation.objects.get(pk=evaluation_id).groups.filter(state="accepted").values_list("pk", flat=True)
    enqueue_many([("evals.grade_group", {"group_id": pk}, "io", f"sides:{pk}") for pk in groups])


@task("evals.grade_group", queue="io", lease="grade:{group_id}", long=True)
def grade_group(*, group_id: int, **_: Any) -> None:
    """Idempotent. Failed grades are logged and count as missing."""
    group = Group.objects.select_related("task_version", "evaluation__grader__endpoint").get(pk=group_id)
    log.info("group %d: %d rollouts have side scores", group_id, behaviour_scores.grade_group(group))


@task("evals.check_contamination", queue="maintenance", lease="contamination:{release_id}", long=True)
def check_contamination(*, release_id: int, **_: Any) -> None:
    """Compare a release with the training suites."""
    check(Release.objects.get(pk=release_id))


@task("evals.cancel_of_run", queue="control", seconds=300)
def cancel_of_run(*, run_id: int, **_: Any) -> None:
    for evaluation in Evaluation.objects.filter(run_id=run_id, state__in=["pending", "running"]):
        services.cancel(evaluation=evaluation)


@task("tasks.record_statistics", queue="maintenance", seconds=600)
def record_statistics(*, evaluation_id: int, **_: Any) -> None:
    prepass.record_statistics(evaluation_id=evaluation_id)
