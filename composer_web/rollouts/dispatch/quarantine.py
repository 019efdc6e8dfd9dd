"""Writes of quarantines: rollouts excluded from their group's training, and tasks set aside.

A quarantine follows from findings and is never set directly. `settle` derives it from a rollout's findings and the
run's policy. Dismissing a finding therefore undoes its effect.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db import transaction

from composer_web.core.artifacts import MAX_GROUP_BYTES, artifacts
from composer_web.core.history import change_state, say_why
from composer_web.live.hints import hint
from composer_web.rollouts.dispatch import advantages
from composer_web.rollouts.dispatch.pump import drop
from composer_web.rollouts.models import (
    QUARANTINE_LEGAL,
    Finding,
    Group,
    Quarantine,
    Rollout,
)
from composer_web.rollouts.review_hooks import review
from composer_web.runs.models import Run
from composer_web.tasks.models import TaskVersion
from sandbox.grading.verdict.outcomes import Cause, Loss, Verdict
from trainer.config import MonitorsConfig, RLConfig
from trainer.rollouts.audit import quarantines, without
from trainer.types import TrainGroup, Trajectory


def monitors_of(run: Run | None) -> MonitorsConfig:
    """Monitor policy of a run. Evaluations and other stages have one that never acts."""
    stage = run.configuration.stage if run is not None else None
    return stage.monitors if isinstance(stage, RLConfig) else MonitorsConfig(quarantine="never")


def demands(finding: Finding, monitors: MonitorsConfig) -> bool:
    """Whether this finding, as it stands, keeps its rollout out of training.

    Confirmed: yes, whatever the policy. Open: as the policy says, never by a language model's word alone, and never for
    a rollout that lost: a loss stays in its group, or cheating visibly would be a way out of it.
    """
    if finding.state == "confirmed":
        return True
    if finding.state != "open" or finding.source == "judge":
        return False
    if finding.rollout is None or finding.rollout.verdict != Verdict.PASSED:
        return False
    return quarantines(finding.rule, finding.severity, monitors)


def active(group: Group) -> frozenset[int]:
    """Samples of the group in quarantine."""
    found = Quarantine.objects.filter(rollout__group=group, state="active")
    return frozenset(found.values_list("rollout__sample", flat=True))


@transaction.atomic
def settle(*, rollouts: Iterable[Rollout], actor: str, reason: str) -> int:
    """Bring the quarantine of these rollouts of one group in line with their findings; returns how many changed.

    A group that is accepted and not yet trained is weighed anew; one that was trained stays as it was trained.
    """
    rows = {rollout.pk: rollout for rollout in rollouts}
    if not rows:
        return 0
    any_row = next(iter(rows.values()))
    group = Group.objects.select_for_update(of=("self",)).select_related("run").get(pk=any_row.group_id)
    monitors = monitors_of(group.run)
    wanted: dict[int, list[str]] = {}
    for finding in (
        Finding.objects.filter(rollout__in=rows, subject="rollout").select_related("rollout").order_by("rule")
    ):
        if demands(finding, monitors) and finding.rollout_id is not None:
            wanted.setdefault(finding.rollout_id, []).append(finding.rule)
    known = {q.rollout_id: q for q in Quarantine.objects.filter(rollout__in=rows)}
    changed = 0
    for pk in rows:
        quarantine = known.get(pk)
        if (pk in wanted) != (quarantine is not None and quarantine.state == "active"):
            why = f"{reason}: {', '.join(wanted[pk])}" if pk in wanted else reason
            _set(quarantine, on=pk in wanted, actor=actor, reason=why, rollout=rows[pk])
            changed += 1
    if changed and group.state == "accepted" and group.train_key:
        reweigh(group=group, actor=actor, reason=reason)
    if changed:
        hint(f"group:{group.pk}", "findings", *((f"run:{group.run_id}",) if group.run_id else ()))
    return changed


def _set(
    quarantine: Quarantine | None,
    *,
    on: bool,
    actor: str,
    reason: str,
    rollout: Rollout | None = None,
    task_version: TaskVersion | None = None,
) -> Quarantine:
    if quarantine is None:
        say_why(actor=actor, reason=reason)
        return Quarantine.objects.create(rollout=rollout, task_version=task_version)
    return change_state(quarantine, "active" if on else "lifted", legal=QUARANTINE_LEGAL, actor=actor, reason=reason)


@transaction.atomic
def settle_task(*, version: TaskVersion, actor: str, reason: str) -> bool:
    """Quarantine a task while it has a finding that is not dismissed. Returns whether that changed."""
    wanted = Finding.objects.filter(task_version=version, subject="task").exclude(state="dismissed").exists()
    quarantine = Quarantine.objects.select_for_update().filter(task_version=version).first()
    if wanted == (quarantine is not None and quarantine.state == "active"):
        return False
    _set(quarantine, on=wanted, actor=actor, reason=reason, task_version=version)
    hint("findings", "suites")
    return True


def reweigh(*, group: Group, actor: str, reason: str) -> None:
    """Recompute the training view of an accepted group: without quarantined rollouts, with the reviewers' rewards.
    The group is locked."""
    trajectories = [
        artifacts().get_model(key, Trajectory)
        for key in Rollout.objects.filter(group=group).order_by("sample").values_list("artifact_key", flat=True)
    ]
    before = artifacts().get_model(group.train_key, TrainGroup, max_bytes=MAX_GROUP_BYTES)
    out = active(group)
    assert group.run is not None, "only groups of runs are trained on"
    stage = group.run.configuration.stage
    assert isinstance(stage, RLConfig)
    trajectories = review().paid(group, trajectories)
    made = without(before, trajectories, out, stage)
    if made is None:
        cause = f"dropped: too few rollouts are left beside the quarantine ({reason})"
        drop(group=group, loss=Loss(Cause.QUARANTINED, cause), actor=actor)
        return
    group.train_key = f"{group.train_key.rpartition('/')[0]}/train-{uuid.uuid4().hex[:8]}.json.zst"
    artifacts().put_model(group.train_key, made, max_bytes=MAX_GROUP_BYTES)
    rewards = made.rewards
    group.mean_reward, group.best_reward = sum(rewards) / len(rewards), max(rewards)
    left = [trajectory.sample for index, trajectory in enumerate(trajectories) if index not in out]
    group.weights = advantages.weigh(group.run, dict(zip(left, rewards, strict=True)))
    group.save(update_fields=["train_key", "mean_reward", "best_reward", "weights"])
