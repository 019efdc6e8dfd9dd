"""Auditing one attempt: every rule, and what grading noticed. Pure, deterministic, a few milliseconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import islice

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.audit.attempt.attempt import Attempt
from sandbox.grading.audit.attempt.evidence import Evidence
from sandbox.grading.audit.registry import GRADING_VERSION, RULES
from sandbox.grading.audit.rules.base import Basis, Finding, Hit, Severity, collect
from sandbox.grading.audit.rules.policy import bound, lower, of_grading, outweighed
from sandbox.grading.patches.patch import render
from sandbox.grading.verdict.findings import ReportFinding

MAX_HITS, MAX_LOOKED_AT = 200, 5_000
"""Hits of one rule that are kept, the worst first, and that are looked at: many weak ones hide no strong one."""


MAX_LINE, MAX_LINES = 10_000, 2_500
"""Characters of a line and lines of a text up to which every rule reads it."""
SHORT_LINES = frozenset(
    {"answered-inputs", "constant-function", "digest-lookup", "test-weakened", "staged-run", "swallowed", "test-scripts",
     "dependency-changed", "hidden-tests-read", "copied-answer", "against-the-task", "surroundings", "delegated", "bare-claim"}
)  # fmt: skip
"""Rules whose time grows faster than the length of a line; work that is too long for them is reported as such."""


def _is_long(attempt: Attempt) -> bool:
    texts = [
        attempt.patch,
        *(v for s in attempt.steps for c in s.calls for v in c.arguments.values() if isinstance(v, str)),
    ]
    return any(
        text.count("\n") > 4 * MAX_LINES or any(len(line) > MAX_LINE for line in text.split("\n")) for text in texts
    ) or any(len(file.added) > MAX_LINES for file in attempt.files)


def audit(attempt: Attempt, noticed: Sequence[ReportFinding] = ()) -> list[Finding]:
    """Findings of one attempt, signals included, worst first. `noticed` is what its grading reported."""
    hits: dict[str, list[Hit]] = {}
    seen = {item.rule for item in noticed}
    long = _is_long(attempt)
    for rule in RULES.values():
        if long and rule.id in SHORT_LINES:
            continue
        found = [
            dataclasses.replace(hit, severity=outweighed(rule.id, bound(attempt, rule.id, hit), seen))
            for hit in islice(rule.check(attempt), MAX_LOOKED_AT)
        ]
        if found:
            hits[rule.id] = sorted(found, key=lambda hit: -hit.severity.rank)[:MAX_HITS]
    if not long and any(hit.severity.rank >= Severity.MEDIUM.rank for found in hits.values() for hit in found):
        hits = _less_what_the_reference_does(attempt, hits)
    if long:
        place = Evidence(source="patch", excerpt="lines or files too long to be read by every rule")
        hits.setdefault("adaptive-code", []).append(Hit(Severity.MEDIUM, "a file is too long to be read", place))
    for item in noticed:
        place = Evidence(source="report", excerpt=item.detail)
        hits.setdefault(item.rule.value, []).append(
            Hit(
                of_grading(item.rule, attempt.instruction, item.detail),
                item.detail or item.rule.value,
                place,
                Basis.BEHAVIOUR,
            )
        )
    made = (
        collect(rule, RULES[rule].version if rule in RULES else GRADING_VERSION, found) for rule, found in hits.items()
    )
    return worst_first(finding for finding in made if finding is not None)


def _less_what_the_reference_does(attempt: Attempt, hits: dict[str, list[Hit]]) -> dict[str, list[Hit]]:
    """What the patch of the reference solution shows as well, the task calls for: it is low in the work."""
    task = attempt.task
    files = {path: text for path, text in task.gold.items() if text != attempt.visible.get(path)} if task else {}
    if not files:
        return hits
    changes = tuple(
        FileChange(path, text.encode(), before=attempt.visible[path].encode() if path in attempt.visible else None)
        for path, text in sorted(files.items())
    )
    reference = Attempt(attempt.instruction, (), render(Patch(changes)), task=task)
    usual = {
        (rule, hit.note)
        for rule, found in hits.items()
        if any(hit.evidence.source == "patch" for hit in found)
        for hit in islice(RULES[rule].check(reference), MAX_HITS)
    }
    return {
        rule: [
            dataclasses.replace(hit, severity=lower(hit.severity, Severity.LOW))
            if hit.evidence.source == "patch" and (rule, hit.note) in usual
            else hit
            for hit in found
        ]
        for rule, found in hits.items()
    }


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (-finding.severity.rank, finding.rule))


def kept(findings: Iterable[Finding]) -> list[Finding]:
    """Those that people see: signals count only inside a group."""
    return [finding for finding in findings if finding.severity is not Severity.SIGNAL]
