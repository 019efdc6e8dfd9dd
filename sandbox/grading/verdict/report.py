"""The structured outcome of grading: a status per expected test id, and one verdict."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from sandbox.grading.adapters.base import CaseStatus
from sandbox.grading.verdict.findings import ReportFinding
from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, Verdict
from sandbox.storable import StorableText

__all__ = ["CaseResult", "Report", "Verdict"]


class CaseResult(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    id: StorableText
    status: CaseStatus
    message: StorableText = ""
    """At most 500 characters of the failure, for people; never shown to the policy."""


class Report(BaseModel):
    """`passed` only if every expected id is present and passed; `infra_error` is missing data, never a reward."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    verdict: Verdict
    outcome: Cause | None = None
    """The row of the table in `outcomes.py`; None in reports of before it existed."""
    cases: tuple[CaseResult, ...] = ()
    cause: StorableText = ""
    """Why it is not passed, in one line (`3 of 24 cases failed`, `the sandbox was lost`)."""
    seconds: float = 0.0
    bundle_hash: str = ""
    dropped: tuple[StorableText, ...] = ()
    """Changed paths that were not graded, as `path: reason`."""
    canaries: int = 0
    """Tests that had to fail and were inserted among the expected ones."""
    findings: tuple[ReportFinding, ...] = ()
    """What grading noticed besides the verdict; never part of it."""

    @model_validator(mode="after")
    def _one_verdict(self) -> Self:
        if self.outcome is not None and OUTCOMES[self.outcome].verdict is not self.verdict:
            raise ValueError(f"outcome {self.outcome} has the verdict {OUTCOMES[self.outcome].verdict}")
        return self

    @property
    def retry(self) -> bool:
        """Whether the attempt may be run again. Reports without an outcome: whatever is not judged."""
        if self.outcome is None:
            return self.verdict is Verdict.INFRA_ERROR
        return OUTCOMES[self.outcome].retry
