"""Writes of groups and rollouts: dispatch under the gate, claim under a lease, accept in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from composer_web.evals.models import Evaluation
from composer_web.live.hints import hint
from composer_web.ops import leases
from composer_web.ops.history import change_state, say_why
from composer_web.ops.outbox import enqueue, enqueue_many
from composer_web.rollouts.models import GROUP_LEGAL, GROUP_OPEN, Group, Rollout, RolloutState
from composer_web.runs.models import RUN_FINAL, Run, RunState
from composer_web.runs.services import add_event, mark_failed
from composer_web.tasks.selectors import prompt_order
from trainer.config import RLConfig
from trainer.rollouts.gate import admissible_groups
from trainer.rollouts.types import Trajectory

MAX_ATTEMPTS = 3
"""Times that a whole group is tried (its episodes have their own retries) before it is dropped and replaced."""

RETRY_SECONDS = 3.0


@transaction.atomic
def pump(*, run_id: int) -> int:
    """Dispatch as many groups of a running RL run as the gate admits now; returns how many.

    Prompts are taken in the seeded order of the suite, each once. Called when the run starts, a group is accepted
    or dropped, a version is published, and by beat: any lost call is made up by the next.
    """
    run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
    if run.state != RunState.RUNNING or run.kind != "rl" or run.policy_version < 0:
        return 0
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    states = list(Group.objects.filter(run=run).exclude(state="dropped").values_list("state", flat=True))
    open_groups = sum(state in GROUP_OPEN for state in states)
    count = admissible_groups(
        published_version=run.policy_version,
        max_staleness=stage.max_staleness,
        groups_per_step=stage.groups_per_step,
        group_size=stage.group_size,
        accepted_groups=len(states) - open_groups,
        reserved_groups=open_groups,
        in_flight_limit=stage.max_in_flight_groups,
        total_groups=stage.steps * stage.groups_per_step,
    )
    if count <= 0:
        return 0
    order = prompt_order(stage.suite, seed=run.seed)
    newest = Group.objects.filter(run=run).aggregate(newest=Max("prompt_index"))["newest"]
    start = 0 if newest is None else newest + 1
    # A rejected version leaves the order shorter: never repeat what the run has used.
    used = set(Group.objects.filter(run=run).values_list("task_version_id", flat=True))
    fresh = [pk for pk in order if pk not in used][:count]
    if not fresh:
        if open_groups == 0 and len(states) < stage.steps * stage.groups_per_step:
            mark_failed(
                run=run,
                cause=f"suite {stage.suite!r} ran out of prompts after {start}: {len(states)} groups were accepted of "
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
    """All groups of an evaluation, one per task in this order. Idempotent."""
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


def _dispatch(groups: list[Group], *, queue: str, reason: str) -> None:
    now = timezone.now()
    say_why(actor="system", reason=reason)
    for group in groups:
        group.state, group.dispatched_at = "dispatched", now
    Group.objects.bulk_create(groups)
    Rollout.objects.bulk_create([Rollout(group=group, sample=i) for group in groups for i in range(group.size)])
    enqueue_many([("rollouts.run_group", {"group_id": group.pk}, queue, None) for group in groups])


@dataclass(frozen=True, slots=True)
class Claim:
    """A group that this worker may run, with the lease that fences its writes."""

    group: Group
    held: leases.Held


@transaction.atomic
def claim(*, group_id: int, owner: str, seconds: float) -> Claim | None:
    """Take a dispatched group. None when it is finished, someone else runs it, or its run has ended (then it is dropped)."""
    group = (
        Group.objects.select_for_update(of=("self",))
        .select_related("run", "evaluation", "task_version__task")
        .get(pk=group_id)
    )
    if group.state != "dispatched":
        return None
    ended = (
        group.run.state in RUN_FINAL
        if group.run
        else group.evaluation is not None and group.evaluation.state != "running"
    )
    if ended:
        drop(group=group, cause="its run or evaluation has ended")
        return None
    held = leases.take(f"group:{group_id}", owner=owner, seconds=seconds)
    if held is None:
        return None
    change_state(group, "running", legal=GROUP_LEGAL, actor=owner, reason="claimed", attempts=group.attempts + 1)
    Rollout.objects.filter(group=group, state="dispatched").update(state=RolloutState.RUNNING)
    hint(f"group:{group.pk}", *_owner_topics(group))
    return Claim(group, held)


@dataclass(frozen=True, slots=True)
class Graded:
    """One rollout as it is stored: the trajectory and the key of its blob."""

    trajectory: Trajectory
    artifact_key: str


@transaction.atomic
def accept(
    *,
    group: Group,
    held: leases.Held,
    graded: Sequence[Graded],
    train_key: str,
    oldest_version: int,
    infra_errors: Sequence[str],
) -> bool:
    """Store every verdict and accept the group, in one transaction fenced by the lease. Raises LeaseLost.

    False when the group was accepted or dropped meanwhile: nothing is written a second time. Then dispatches what
    the gate now admits.
    """
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    if row.state != "running":
        return False
    _write_verdicts(row, graded, actor=held.owner)
    rewards = [g.trajectory.reward for g in graded if g.trajectory.reward is not None]
    change_state(
        row,
        "accepted",
        legal=GROUP_LEGAL,
        actor=held.owner,
        reason="all rollouts have verdicts",
        oldest_version=oldest_version,
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        best_reward=max(rewards, default=None),
        train_key=train_key,
        accepted_at=timezone.now(),
        infra_errors=row.infra_errors + len(infra_errors),
        cause="",
    )
    leases.release(held)
    if infra_errors and row.run:
        _note_infra(row, f"{len(infra_errors)} attempts were lost and run again", infra_errors)
    _after_end(row)
    return True


@transaction.atomic
def fail(
    *, group: Group, held: leases.Held, cause: str, graded: Sequence[Graded] = (), infra_errors: Sequence[str] = ()
) -> bool:
    """The infrastructure failed under a group: dispatch it again, or drop it once its attempts are used up.

    True when it will be tried again. Raises LeaseLost. Verdicts of a failed attempt count only when it was the last.
    """
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    if row.state != "running":
        return False
    row.infra_errors += max(1, len(infra_errors))
    row.save(update_fields=["infra_errors"])
    leases.release(held)
    again = row.attempts < MAX_ATTEMPTS
    if row.run:
        _note_infra(row, f"attempt {row.attempts} of {MAX_ATTEMPTS} failed: {cause}", infra_errors)
    if again:
        requeue(group=row, cause=cause, delay=RETRY_SECONDS * row.attempts)
    else:
        _write_verdicts(row, graded, actor=held.owner)
        drop(group=row, cause=f"dropped after {row.attempts} attempts: {cause}")
    return again


@transaction.atomic
def give_back(*, group: Group, held: leases.Held) -> None:
    """A worker that stops returns its group to the queue; not an infra error. Raises LeaseLost."""
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    leases.release(held)
    if row.state == "running":
        row.attempts -= 1
        row.save(update_fields=["attempts"])
        requeue(group=row, cause="its worker was stopped", actor=held.owner)


@transaction.atomic
def drop_claimed(*, group: Group, held: leases.Held, cause: str) -> None:
    """Drop a group that this worker runs, unless it was ended meanwhile. Raises LeaseLost."""
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    leases.release(held)
    if row.state == "running":
        drop(group=row, cause=cause, actor=held.owner)


@transaction.atomic
def recover(*, group_id: int, cause: str) -> str:
    """A group without a living worker goes back to the queue, or is dropped once its attempts are used up."""
    group = Group.objects.select_for_update(of=("self",)).get(pk=group_id)
    if group.state == "dispatched":
        enqueue(
            "rollouts.run_group",
            {"group_id": group.pk},
            queue="rollout" if group.run_id else "eval",
            key=f"group:{group.pk}",
        )
        return "sent again"
    if group.state != "running" or leases.is_held(f"group:{group.pk}"):
        return "left alone"
    group.infra_errors += 1
    group.save(update_fields=["infra_errors"])
    if group.run:
        _note_infra(group, cause, [cause])
    if group.attempts >= MAX_ATTEMPTS:
        drop(group=group, cause=f"dropped after {group.attempts} attempts: {cause}")
        return "dropped"
    requeue(group=group, cause=cause, actor="reconciler")
    return "dispatched again"


@transaction.atomic
def requeue(*, group: Group, cause: str, delay: float = 0.0, actor: str = "system") -> Group:
    """A running group whose attempt is over without verdicts goes back to the queue."""
    version = group.run.policy_version if group.run else group.dispatched_version
    change_state(
        group,
        "dispatched",
        legal=GROUP_LEGAL,
        actor=actor,
        reason=cause,
        cause=cause,
        dispatched_at=timezone.now(),
        dispatched_version=version,
    )
    Rollout.objects.filter(group=group, state="running").update(state=RolloutState.DISPATCHED)
    enqueue("rollouts.run_group", {"group_id": group.pk}, queue="rollout" if group.run_id else "eval", delay=delay)
    hint(f"group:{group.pk}")
    return group


@transaction.atomic
def drop(*, group: Group, cause: str, actor: str = "system") -> Group:
    """Give a group up: its open rollouts end as `infra_error` with this cause, and the gate has room for another prompt."""
    change_state(group, "dropped", legal=GROUP_LEGAL, actor=actor, reason=cause, cause=cause)
    Rollout.objects.filter(group=group, verdict="").update(
        state=RolloutState.LOST,
        verdict="infra_error",
        cause=cause,
        finished_at=timezone.now(),
        stop_reason="cancelled" if "ended" in cause or "cancelled" in cause else "infra_error",
    )
    _after_end(group)
    return group


@transaction.atomic
def drop_open(
    *, run_id: int | None = None, evaluation_id: int | None = None, cause: str = "cancelled: the run has ended"
) -> int:
    """Drop the groups of an ended run or evaluation that have no verdicts yet; workers notice and stop."""
    rows = Group.objects.select_for_update(of=("self",)).filter(state__in=GROUP_OPEN)
    owner = {"run_id": run_id} if run_id else {"evaluation_id": evaluation_id}
    rows = rows.filter(**owner)
    found = list(rows)
    for group in found:
        drop(group=group, cause=cause)
    return len(found)


@transaction.atomic
def consume(*, run: Run, group_ids: Sequence[int], step: int) -> None:
    """Accepted groups become the batch of `step`. Fails whole if one of them is not accepted."""
    say_why(actor="trainer", reason=f"batch of step {step}")
    changed = Group.objects.filter(run=run, pk__in=group_ids, state="accepted").update(
        state="consumed", consumed_step=step
    )
    assert changed == len(group_ids), f"{len(group_ids) - changed} groups of step {step} are not accepted"


def _write_verdicts(group: Group, graded: Sequence[Graded], *, actor: str) -> None:
    rows = {r.sample: r for r in Rollout.objects.select_for_update().filter(group=group, verdict="")}
    now = timezone.now()
    say_why(actor=actor, reason="graded")
    changed = []
    for item in graded:
        t = item.trajectory
        row = rows.get(t.sample)
        if row is None:
            continue
        lost = t.reward is None
        row.state = RolloutState.LOST if lost else RolloutState.GRADED
        row.verdict = "infra_error" if lost else str(t.verdict)
        row.stop_reason, row.reward, row.cause = str(t.stop_reason), t.reward, t.report.cause[:2000]
        row.reward_parts = [part.model_dump(mode="json") for part in t.reward_parts]
        results = [result for turn in t.turns for result in turn.results]
        row.turns, row.tool_calls = len(t.turns), sum(len(turn.calls) for turn in t.turns)
        row.tool_errors = sum(result.error is not None for result in results)
        row.policy_tokens, row.total_tokens = t.policy_tokens, sum(len(s.tokens) for s in t.segments)
        row.oldest_version, row.newest_version = t.oldest_version, t.newest_version
        row.seconds, row.artifact_key, row.finished_at = t.seconds, item.artifact_key, now
        changed.append(row)
    Rollout.objects.bulk_update(
        changed,
        [
            "state",
            "verdict",
            "stop_reason",
            "reward",
            "cause",
            "reward_parts",
            "turns",
            "tool_calls",
            "tool_errors",
            "policy_tokens",
            "total_tokens",
            "oldest_version",
            "newest_version",
            "seconds",
            "artifact_key",
            "finished_at",
        ],
    )


def _after_end(group: Group) -> None:
    hint(f"group:{group.pk}", "rollouts", *_owner_topics(group))
    if group.evaluation_id:
        enqueue(
            "evals.advance",
            {"evaluation_id": group.evaluation_id},
            queue="control",
            key=f"advance:{group.evaluation_id}",
        )
    elif group.run_id and group.run.state == RunState.RUNNING:  # type: ignore[union-attr]
        pump(run_id=group.run_id)


def _owner_topics(group: Group) -> tuple[str, ...]:
    return (f"run:{group.run_id}",) if group.run_id else (f"eval:{group.evaluation_id}",)


def _note_infra(group: Group, message: str, causes: Sequence[str]) -> None:
    assert group.run is not None
    distinct = sorted(set(causes))[:5]
    add_event(
        run=group.run,
        kind="infra",
        level="warning",
        message=f"group {group.pk}: {message}",
        data={"group": group.pk, "causes": [cause[:300] for cause in distinct]},
    )
