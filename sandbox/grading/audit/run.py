"""Auditing one attempt: every rule, and what grading noticed. Pure, deterministic, a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.grading.audit.attempt import Attempt
from sandbox.grading.audit.base import Evidence, Finding, Hit, Severity, collect
from sandbox.grading.audit.registry import GRADING_VERSION, RULES, severity_of
from sandbox.grading.findings import ReportFinding

MAX_HITS = 200
"""Hits of one rule that are looked at; an attempt that has more needs no more."""


def audit(attempt: Attempt, noticed: Sequence[ReportFinding] = ()) -> list[Finding]:
    """Findings of one attempt, signals included, worst first. `noticed` is what its grading reported."""
    hits: dict[str, list[Hit]] = {}
    for rule in RULES.values():
        for hit in rule.check(attempt):
            found = hits.setdefault(rule.id, [])
            found.append(hit)
            if len(found) >= MAX_HITS:
                break
    for item in noticed:
        place = Evidence(source="report", excerpt=item.detail)
        hits.setdefault(item.rule.value, []).append(Hit(severity_of(item.rule), item.detail or item.rule.value, place))
    made = (
        collect(rule, RULES[rule].version if rule in RULES else GRADING_VERSION, found) for rule, found in hits.items()
    )
    return worst_first(finding for finding in made if finding is not None)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (-finding.severity.rank, finding.rule))


def kept(findings: Iterable[Finding]) -> list[Finding]:
    """Those that people see: signals count only inside a group."""
    return [finding for finding in findings if finding.severity is not Severity.SIGNAL]
