"""The auditor: deterministic, outcome-blind rules over trajectories. See docs/sandbox/grading.md."""

from sandbox.grading.audit.attempt import Attempt, Step
from sandbox.grading.audit.base import Evidence, Finding, Rule, Severity
from sandbox.grading.audit.registry import RULES, TITLES, rule_set
from sandbox.grading.audit.run import audit, kept

__all__ = ["RULES", "TITLES", "Attempt", "Evidence", "Finding", "Rule", "Severity", "Step", "audit", "kept", "rule_set"]
