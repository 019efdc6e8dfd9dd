"""Rules that raise findings: those of the auditor, of the monitors, of reviewers' labels and of the LLM judge."""

from __future__ import annotations

from sandbox.grading.audit import TITLES
from sandbox.grading.audit.drift import DRIFT_TITLES
from sandbox.grading.audit.judge import titles as judge_titles
from trainer.rollouts.audit import AUDIT_FAILED

OF_MONITORS = {
    AUDIT_FAILED: "The rules cannot read the rollout",
    "hacked-task": "Many rollouts of one task are in quarantine",
    "hollow-group": "Too few rollouts of a group are left to learn from",
    "review-label": "Reviewers labelled it as nothing to learn from",
    "quarantine-share": "A large share of a run's rollouts is in quarantine",
}
RULE_TITLES: dict[str, str] = {**TITLES, **DRIFT_TITLES, **OF_MONITORS, **judge_titles()}
"""Rule that may raise a finding → its title."""
