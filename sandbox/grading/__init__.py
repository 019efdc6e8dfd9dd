"""Grading: verdicts on patches, computed outside a clean sandbox from what ran inside it.

`grader` grades one patch; `suite` and `calls` run the two kinds of hidden verifier, `filter` decides which changes
count, `judging` turns statuses into a verdict, `outcomes` names every way in which grading can end. `controls/`
measures whether a task can be graded, `audit/` looks for cheating in trajectories, `cheats/` are scripted exploits.
"""

from sandbox.grading.findings import ReportFinding
from sandbox.grading.grader import grade
from sandbox.grading.outcomes import OUTCOMES, Cause, Verdict
from sandbox.grading.report import CaseResult, Report

__all__ = ["OUTCOMES", "CaseResult", "Cause", "Report", "ReportFinding", "Verdict", "grade"]
