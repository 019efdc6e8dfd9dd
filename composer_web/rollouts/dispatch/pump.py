"""Dispatches groups under the gate, requeues them and drops them. The other write modules build on these functions."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Count, Max
from django.utils import timezone

from composer_web.core.history import change_state, say_why
from composer_web.core.queue.outbox import enqueue, enqueue_many
from composer_web.evals.models import Evaluation
from composer_web.live.hints import hint
from composer_web.quotas import limits
from composer_web.rollouts.dispatch import scheduling
from composer_web.rollouts.dispatch.prompts import fresh_prompts
from composer_web.rollouts.models import (
    GROUP_LEGAL,
    GROUP_OPEN,
    ROLLOUT_OPEN,
    Fork,
    Group,
    Rollout,
    RolloutState,
)
from composer_web.rollouts.signals import group_ended
from composer_web.runs.models import Run, RunState
from composer_web.runs.services import mark_failed, pause_for
from sandbox.grading.verdict.outcomes import Cause, Loss
from sandbox.storable import storable_text
from trainer.config import RLConfig
from trainer.orchestrator.admission import admissible_groups


@transaction.atomic
def pump(*, run_id: int) -> int:
    """Dispatch as many groups of a running RL run as the gate admits now; returns how many.

    Prompts are taken in the seeded order of the suite, each once. Called when the run starts, a group is accepted
    or dropped, a step takes its batch, a version is published, and by beat: any lost call is made up by the next.
    """
    run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
    if run.state != RunState.RUNNING or run.kind != "rl" or run.policy_version < 0:
        return 0
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    if stage.sessions.channel:
        return 0  # users make its rollouts
    kept = Group.objects.filter(run=run).exclude(state="dropped").order_by()
    states: dict[str, int] = dict(kept.values_list("state").annotate(count=Count("pk")))
    groups_kept, open_groups = sum(states.values()), sum(states.get(state, 0) for state in GROUP_OPEN)
    count = admissible_groups(
        published_version=run.policy_version,
        max_off_policy_steps=stage.max_off_policy_steps,
        groups_per_step=stage.groups_per_step,
        group_size=stage.group_size,
        accepted_groups=groups_kept - open_groups,
        reserved_groups=open_groups,
        in_flight_limit=scheduling.limit_of(run, stage),
        total_groups=stage.steps * stage.groups_per_step,
        over_sampled_groups=stage.over_sampled_groups,
        ready_groups=states.get("accepted", 0),
        max_buffered_groups=stage.max_buffered_groups,
    )
    count = limits.admitted(run=run, wanted=count, group_size=stage.group_size)
    if count <= 0:
        return 0
    newest = Group.objects.filter(run=run).aggregate(newest=Max("prompt_index"))["newest"]
    start = 0 if newest is None else newest + 1
    fresh = fresh_prompts(run, stage, count)
    if not fresh:
        if open_groups == 0 and groups_kept < stage.steps * stage.groups_per_step:
            mark_failed(
                run=run,
                cause=f"suite {stage.suite!r} ran out of prompts after {start}: {groups_kept} groups were accepted of "
                f"{stage.steps * stage.groups_per_step} needed; build a larger suite and start a new run",
            )
        return 0
    groups = [
        Group(
            run=run,
            task_version_id=pk,
            prompt_index=start + i,
            size=stage.group_size,
            dispatched_version=run.policy_version,
        )
        for i, pk in enumerate(fresh)
    ]
    _dispatch(groups, queue="rollout", reason=f"admitted at version {run.policy_version}")
    hint(f"run:{run.pk}", "rollouts")
    return len(groups)


@transaction.atomic
def dispatch_evaluation(*, evaluation: Evaluation, version_ids: Sequence[int]) -> int:
    """Dispatch all groups of an evaluation, one per task, in this order. Idempotent."""
    done = set(Group.objects.filter(evaluation=evaluation).values_list("prompt_index", flat=True))
    groups = [
        Group(
            evaluation=evaluation,
            task_version_id=pk,
            prompt_index=i,
            size=evaluation.samples,
            dispatched_version=evaluation.version,
        )
        for i, pk in enumerate(version_ids)
        if i not in done
    ]
    _dispatch(groups, queue="eval", reason="evaluation started")
    return len(groups)


@transaction.atomic
def dispatch_fork(*, fork: Fork, size: int, version: int) -> Group:
    """Dispatch the single group of a fork: continuations of its parent."""
    parent = fork.parent.group
    group = Group(
        fork=fork,
        task_version_id=parent.task_version_id,
        prompt_index=parent.prompt_index,
        size=size,
        dispatched_version=version,
    )
    _dispatch([group], queue="eval", reason=f"continues rollout {fork.parent_id} after turn {fork.turn}")
    hint(*owner_topics(group), "rollouts")
    return group


def _dispatch(groups: list[Group], *, queue: str, reason: str) -> None:
    now = timezone.now()
    say_why(actor="system", reason=reason)
    for group in groups:
        group.state, group.dispatched_at = "dispatched", now
    Group.objects.bulk_create(groups)
    Rollout.objects.bulk_create([Rollout(group=group, sample=i) for group in groups for i in range(group.size)])
    enqueue_many([("rollouts.run_group", {"group_id": group.pk}, queue, None) for group in groups])


@transaction.atomic
def requeue(
    *, group: Group, cause: str, outcome: Cause | None = None, delay: float = 0.0, actor: str = "system"
) -> Group:
    """Return a running group whose attempt ended without verdicts to the queue. `outcome` is the cause of the loss."""
    cause = storable_text(cause)
    version = group.run.policy_version if group.run else group.dispatched_version
    change_state(
        group,
        "dispatched",
        legal=GROUP_LEGAL,
        actor=actor,
        reason=cause,
        cause=cause,
        outcome=outcome or "",
        dispatched_at=timezone.now(),
        dispatched_version=version,
    )
    Rollout.objects.filter(group=group, state="running").update(state=RolloutState.DISPATCHED)
    enqueue("rollouts.run_group", {"group_id": group.pk}, queue="rollout" if group.run_id else "eval", delay=delay)
    hint(f"group:{group.pk}")
    return group


@transaction.atomic
def drop(*, group: Group, loss: Loss, actor: str = "system") -> Group:
    """Drop a group. Its open rollouts end as `infra_error` with this cause, and the gate admits another prompt."""
    cause = storable_text(loss.message)
    change_state(group, "dropped", legal=GROUP_LEGAL, actor=actor, reason=cause, cause=cause, outcome=str(loss.outcome))
    Rollout.objects.filter(group=group, state__in=ROLLOUT_OPEN).update(
        state=RolloutState.LOST,
        verdict="infra_error",
        cause=cause,
        outcome=str(loss.outcome),
        finished_at=timezone.now(),
        stop_reason="cancelled" if loss.outcome is Cause.CANCELLED else "infra_error",
    )
    if group.run is not None and group.run.state == RunState.RUNNING and (fault := scheduling.fault(group.run)):
        pause_for(run=group.run, cause=f"{fault}; the last because: {group.cause}")
        group.run.refresh_from_db()
    after_end(group)
    return group


@transaction.atomic
def drop_open(
    *, run_id: int | None = None, evaluation_id: int | None = None, cause: str = "cancelled: the run has ended"
) -> int:
    """Drop the groups of an ended run or evaluation that have no verdicts yet. Their workers notice and stop."""
    rows = Group.objects.select_for_update(of=("self",)).filter(state__in=GROUP_OPEN)
    owner = {"run_id": run_id} if run_id else {"evaluation_id": evaluation_id}
    rows = rows.filter(**owner)
    found = list(rows)
    for group in found:
        drop(group=group, loss=Loss(Cause.CANCELLED, cause))
    return len(found)


def after_end(group: Group) -> None:
    hint(f"group:{group.pk}", "rollouts", *owner_topics(group))
    if group.evaluation_id:
        enqueue(
            "evals.advance",
            {"evaluation_id": group.evaluation_id},
            queue="control",
            key=f"advance:{group.evaluation_id}",
        )
    elif group.fork_id:
        enqueue("rollouts.end_fork", {"fork_id": group.fork_id}, queue="maintenance")
    elif group.run_id and group.run.state == RunState.RUNNING:  # type: ignore[union-attr]
        pump(run_id=group.run_id)
        group_ended.send(Group, run_id=group.run_id)


def owner_topics(group: Group) -> tuple[str, ...]:
    if group.fork is not None:
        return (f"group:{group.fork.parent.group_id}",)
    return (f"run:{group.run_id}",) if group.run_id else (f"eval:{group.evaluation_id}",)
