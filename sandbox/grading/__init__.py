"""Grading: verdicts on patches, computed outside a clean sandbox from what ran inside it.

grader.py          grades one patch
patches/           which of its changes count, and how they are applied
verifiers/         the two kinds of hidden verifier: test suites and calls
verdict/           every way in which grading can end, the report, the findings
dynamic_analysis/  how the work behaves beside its tests
controls/          whether a task can be graded
audit/             looks for cheating in trajectories
cheats/            scripted exploits
adapters/          test frameworks; `runners/` are the programs that run inside the sandbox
canaries/          altered tests that must fail; `observations/` rewrites assertions to report values
"""

from sandbox.grading.grader import grade
from sandbox.grading.verdict.findings import ReportFinding
from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, Verdict
from sandbox.grading.verdict.report import CaseResult, Report

__all__ = ["OUTCOMES", "CaseResult", "Cause", "Report", "ReportFinding", "Verdict", "grade"]
