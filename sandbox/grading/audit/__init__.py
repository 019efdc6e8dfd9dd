"""The auditor: deterministic, outcome-blind rules over trajectories. See docs/sandbox/grading.md.

`audit` runs every rule of the registry over one attempt; `group` and `drift` compare attempts, `judge` asks a language model.
"""

from sandbox.grading.audit.attempt import Attempt, Evidence, Step
from sandbox.grading.audit.registry import RULES, TITLES, rule_set
from sandbox.grading.audit.rules import Finding, Rule, Severity
from sandbox.grading.audit.run import audit, kept

__all__ = ["RULES", "TITLES", "Attempt", "Evidence", "Finding", "Rule", "Severity", "Step", "audit", "kept", "rule_set"]
