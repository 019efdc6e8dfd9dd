"""Audits a group of trajectories before training.

A quarantined rollout leaves its group. Advantages use the remaining rewards, A_i = R_i - mean(R of the rest), so
neither its reward nor its tokens move the policy. It is not scored 0 instead: a rule can be wrong, and a wrong 0 would
teach the policy to avoid honest work. At least MIN_REMAINING rollouts must remain. The auditor quarantines only
rollouts that passed. A failed rollout keeps its reward whatever was found in it: otherwise a policy could avoid the
cost of a failure by cheating visibly.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sandbox.grading.audit import Attempt, Finding, Severity, audit, kept
from sandbox.grading.audit.behaviour import measure
from sandbox.grading.audit.group import Member, compare
from sandbox.grading.audit.run import worst_first
from sandbox.grading.verdict.report import Verdict
from sandbox.tasks.spec import TaskSpec
from trainer.attempt import attempt_of
from trainer.config import MonitorsConfig, RLConfig
from trainer.rollouts.group import build_train_group
from trainer.types import TrainGroup, Trajectory

log = logging.getLogger(__name__)

AUDIT_FAILED = "audit-failed"
"""Rule of the finding on a rollout that the rules cannot process."""
MIN_REMAINING = 2
"""Minimum rollouts in a group. A group of one has no baseline; with fewer left the group is dropped."""


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """Audit result of a group, in the order of its trajectories."""

    findings: tuple[tuple[Finding, ...], ...]
    """Findings to display, worst first; signals are excluded."""
    behaviour: tuple[dict[str, float], ...]


def audit_group(trajectories: Sequence[Trajectory], task: TaskSpec | None) -> GroupAudit:
    """Apply the rules to each trajectory, then compare within the group. Takes a few milliseconds per trajectory."""
    attempts = [attempt_of(trajectory, task) for trajectory in trajectories]
    found = [_audited(a, t) for a, t in zip(attempts, trajectories, strict=True)]
    members = [
        Member(a, f, None if t.verdict is Verdict.INFRA_ERROR else t.verdict is Verdict.PASSED)
        for a, f, t in zip(attempts, found, trajectories, strict=True)
    ]
    compared = _compared(members)
    return GroupAudit(
        findings=tuple(
            tuple(worst_first(kept([*own, *of_group]))) for own, of_group in zip(found, compared, strict=True)
        ),
        behaviour=tuple(_measured(attempt) for attempt in attempts),
    )


# What a rule raises on one rollout must not cost the others of its group: a policy could throw away a losing group so.


def _audited(attempt: Attempt, trajectory: Trajectory) -> list[Finding]:
    try:
        return audit(attempt, trajectory.report.findings)
    except Exception as error:
        log.warning("a rollout of task %s cannot be audited", trajectory.task_id, exc_info=True)
        summary = f"the rules cannot read this rollout: {type(error).__name__}"
        return [Finding(rule=AUDIT_FAILED, version=1, severity=Severity.MEDIUM, summary=summary)]


def _compared(members: Sequence[Member]) -> Sequence[Sequence[Finding]]:
    try:
        return compare(members)
    except Exception:
        log.warning("rollouts of a group cannot be compared", exc_info=True)
        return [()] * len(members)


def _measured(attempt: Attempt) -> dict[str, float]:
    try:
        return measure(attempt)
    except Exception:
        log.warning("the behaviour of a rollout cannot be measured", exc_info=True)
        return {}


def quarantines(rule: str, severity: str, monitors: MonitorsConfig) -> bool:
    """Whether the monitor settings exclude a rollout with such a finding from training."""
    if monitors.quarantine == "never" or rule in monitors.ignored:
        return False
    return Severity(severity).rank >= Severity(monitors.quarantine).rank


def quarantined(audited: GroupAudit, trajectories: Sequence[Trajectory], monitors: MonitorsConfig) -> frozenset[int]:
    """Indices of passed trajectories that the monitor settings exclude from training. `audited` is their audit."""
    return frozenset(
        index
        for index, (findings, trajectory) in enumerate(zip(audited.findings, trajectories, strict=True))
        if trajectory.verdict is Verdict.PASSED and any(quarantines(f.rule, f.severity, monitors) for f in findings)
    )


def observed(audited: GroupAudit) -> dict[str, float]:
    """Audit statistics for the group's stats (names of `learning/metrics.py`), as means over all its rollouts."""
    count = len(audited.findings)
    sums = {"audit/findings": float(sum(map(len, audited.findings))), "audit/quarantined": 0.0}
    for values in audited.behaviour:
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value
    return {name: value / count for name, value in sums.items()}


def without(
    group: TrainGroup, trajectories: Sequence[Trajectory], out: Collection[int], config: RLConfig
) -> TrainGroup | None:
    """`group` without the trajectories at the indices `out`; None when too few remain.

    Rewards, advantages and hinted turns are those of the rest. Labels and other numbers still cover all rollouts, so
    exclusion does not hide what the policy does.
    """
    rest = [trajectory for index, trajectory in enumerate(trajectories) if index not in out]
    if len(rest) < MIN_REMAINING:
        return None
    made = build_train_group(
        rest,
        group_id=group.group_id,
        prompt_index=group.prompt_index,
        config=config,
        dispatched_version=group.dispatched_version,
    )
    share = (len(trajectories) - len(rest)) / len(trajectories)
    samples = {trajectory.sample for trajectory in rest}
    return made.model_copy(
        update={
            "hints": [hint for hint in group.hints if hint.sample in samples],
            "labels": group.labels,
            "stats": {**group.stats, "audit/quarantined": share},
        }
    )
