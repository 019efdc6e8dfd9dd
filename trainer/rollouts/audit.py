"""The auditor over a group of trajectories, before the group is trained on.

A quarantined rollout leaves its group: advantages are taken over the rewards that remain, A_i = R_i - mean(R of the
rest), so neither its reward nor its tokens move the policy, up or down. It is not scored 0 instead: a rule can be
wrong, and a wrong 0 would teach the policy to avoid honest work. What remains must be at least LEAST_REMAINING rollouts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sandbox.grading.audit import Finding, Severity, audit, kept
from sandbox.grading.audit.behaviour import measure
from sandbox.grading.audit.group import Member, compare
from sandbox.grading.audit.run import worst_first
from sandbox.grading.report import Verdict
from sandbox.tasks.spec import TaskSpec
from trainer.config import MonitorsConfig, RLConfig
from trainer.rollouts.attempt import attempt_of
from trainer.rollouts.group import build_train_group
from trainer.rollouts.types import TrainGroup, Trajectory

LEAST_REMAINING = 2
"""A group of one has no baseline: with fewer left there is nothing to learn and the group is dropped."""


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """What the auditor says of a group, in the order of its trajectories."""

    findings: tuple[tuple[Finding, ...], ...]
    """What people see, worst first; signals are left out."""
    behaviour: tuple[dict[str, float], ...]


def audit_group(trajectories: Sequence[Trajectory], task: TaskSpec | None) -> GroupAudit:
    """Rules over each trajectory, then the comparison of the group. A few milliseconds a trajectory."""
    attempts = [attempt_of(trajectory, task) for trajectory in trajectories]
    found = [audit(a, t.report.findings) for a, t in zip(attempts, trajectories, strict=True)]
    members = [
        Member(a, f, None if t.verdict is Verdict.INFRA_ERROR else t.verdict is Verdict.PASSED)
        for a, f, t in zip(attempts, found, trajectories, strict=True)
    ]
    compared = compare(members)
    return GroupAudit(
        findings=tuple(
            tuple(worst_first(kept([*own, *of_group]))) for own, of_group in zip(found, compared, strict=True)
        ),
        behaviour=tuple(measure(attempt) for attempt in attempts),
    )


def quarantines(rule: str, severity: str, monitors: MonitorsConfig) -> bool:
    """Whether the policy keeps a rollout with such a finding out of training."""
    if monitors.quarantine == "never" or rule in monitors.ignored:
        return False
    return Severity(severity).rank >= Severity(monitors.quarantine).rank


def quarantined(audited: GroupAudit, monitors: MonitorsConfig) -> frozenset[int]:
    """Indices of the trajectories that the policy keeps out of training."""
    return frozenset(
        index
        for index, findings in enumerate(audited.findings)
        if any(quarantines(f.rule, f.severity, monitors) for f in findings)
    )


def observed(audited: GroupAudit) -> dict[str, float]:
    """Numbers of the audit for the group's stats (names of `learning/metrics.py`), means over all its rollouts."""
    count = len(audited.findings)
    sums = {"audit/findings": float(sum(map(len, audited.findings))), "audit/quarantined": 0.0}
    for values in audited.behaviour:
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value
    return {name: value / count for name, value in sums.items()}


def without(
    group: TrainGroup, trajectories: Sequence[Trajectory], out: Collection[int], config: RLConfig
) -> TrainGroup | None:
    """`group` trained on its `trajectories` but those at the indices `out`; None when too few remain.

    Rewards and advantages are those of the rest. The group's other numbers stay those of all its rollouts: what the
    policy does is not hidden by leaving it out.
    """
    rest = [trajectory for index, trajectory in enumerate(trajectories) if index not in out]
    if len(rest) < LEAST_REMAINING:
        return None
    made = build_train_group(
        rest,
        group_id=group.group_id,
        prompt_index=group.prompt_index,
        config=config,
        dispatched_version=group.dispatched_version,
    )
    share = (len(trajectories) - len(rest)) / len(trajectories)
    return made.model_copy(update={"stats": {**group.stats, "audit/quarantined": share}})
