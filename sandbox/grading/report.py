"""The structured outcome of grading: a status per expected test id, and one verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from sandbox.grading.findings import ReportFinding

CaseStatus = Literal["passed", "failed", "error", "skipped", "missing", "timeout"]


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    INFRA_ERROR = "infra_error"


class CaseResult(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    status: CaseStatus
    message: str = ""
    """At most 500 characters of the failure, for people; never shown to the policy."""


class Report(BaseModel):
    """`passed` only if every expected id is present and passed; `infra_error` is missing data, never a reward."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    verdict: Verdict
    cases: tuple[CaseResult, ...] = ()
    cause: str = ""
    """Why it is not passed, in one line (`3 of 24 cases failed`, `the sandbox was lost`)."""
    seconds: float = 0.0
    bundle_hash: str = ""
    dropped: tuple[str, ...] = ()
    """Changed paths that were not carried into grading, as `path: reason`."""
    findings: tuple[ReportFinding, ...] = ()
    """What grading noticed besides the verdict; never part of it."""
