"""What grading says: the table of outcomes, the report with a status per test, and the findings beside it."""

from sandbox.grading.verdict.findings import ReportFinding
from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, Verdict
from sandbox.grading.verdict.report import CaseResult, Report

__all__ = ["OUTCOMES", "CaseResult", "Cause", "Report", "ReportFinding", "Verdict"]
