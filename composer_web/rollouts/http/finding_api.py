"""HTTP API of findings: list, read, decide, re-audit."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import findings
from composer_web.rollouts.http.schemas import AuditRuleOut, DecisionIn, FindingDetail, FindingOut
from composer_web.rollouts.search.filters import FindingFilter
from composer_web.runs.selectors import get_run
from sandbox.grading.audit import RULES

router = Router()
STATES: dict[str, findings.Decision] = {"confirm": "confirmed", "dismiss": "dismissed", "reopen": "open"}


@router.get("", response=Page[FindingOut], summary="List findings")
def list_findings(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    rule: str = "",
    severity: str = "",
    state: str = "",
    subject: str = "",
    run: str = Query("", description="Number or name"),
    task: str = "",
    quarantined: bool | None = None,
) -> Any:
    """Newest first; the filters are those of the findings page."""
    return page(filtered(FindingFilter, request, selectors.findings()), limit=limit, before=before)


@router.get(
    "/rules", response=list[AuditRuleOut], summary="The auditor's rules, what they read and where they may be wrong"
)
def list_rules(request: HttpRequest) -> Any:
    return [
        {
            "id": rule.id,
            "version": rule.version,
            "title": rule.title,
            "looks_at": rule.looks_at,
            "hazard": rule.hazard,
            "exploits": list(rule.exploits),
        }
        for rule in RULES.values()
    ]


@router.post(
    "/audit", response={202: None, 404: ErrorOut, 422: ErrorOut}, auth=needs("review"), summary="Audit a run again"
)
def audit_run(request: HttpRequest, run: int, judge: bool = False) -> Any:
    """By the rules in force, with `judge` also by the language model; a worker does it. Doing it twice changes nothing."""
    findings.request_audit(run=get_run(run), actor=caller(request), judge=judge)
    return Status(202, None)


@router.get("/{finding_id}", response={200: FindingDetail, 404: ErrorOut}, summary="One finding with its history")
def get_finding(request: HttpRequest, finding_id: int) -> Any:
    return selectors.get_finding(finding_id)


@router.post(
    "/{finding_id}/{action}",
    response={200: FindingDetail, 404: ErrorOut, 409: ErrorOut},
    auth=needs("review"),
    summary="Confirm, dismiss or reopen",
)
def decide(
    request: HttpRequest, finding_id: int, action: Literal["confirm", "dismiss", "reopen"], payload: DecisionIn
) -> Any:
    finding = selectors.get_finding(finding_id)
    findings.decide(finding=finding, to=STATES[action], actor=caller(request), note=payload.note)
    return selectors.get_finding(finding_id)
