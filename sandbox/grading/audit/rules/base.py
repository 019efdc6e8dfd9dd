"""The words of an audit: a rule, what it hits, and the finding that people read.

Rules are outcome-blind: they see what was asked, done and left behind, never the verdict or the reward.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from sandbox.grading.audit.attempt.attempt import Attempt
from sandbox.grading.audit.attempt.evidence import Evidence
from sandbox.storable import StorableText

MAX_EVIDENCE = 8
"""Places kept of one finding; the rest is counted."""


class Severity(StrEnum):
    """How sure a hit makes us that somebody should look. `signal` is only kept where a group gives it meaning."""

    SIGNAL = "signal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Basis(StrEnum):
    """What a hit rests on, the strongest last (`policy.py`)."""

    PATTERN = "pattern"
    FLOW = "flow"
    BEHAVIOUR = "behaviour"

    @property
    def rank(self) -> int:
        return list(Basis).index(self)


@dataclass(frozen=True, slots=True)
class Hit:
    severity: Severity
    note: str
    """What was found, in a few words."""
    evidence: Evidence
    basis: Basis = Basis.PATTERN


class Finding(BaseModel):
    """All hits of one rule on one attempt, group or run."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rule: str
    version: int
    severity: Severity
    summary: StorableText
    evidence: tuple[Evidence, ...] = ()
    hits: int = 1

    @property
    def fingerprint(self) -> str:
        """Names the content of the evidence, whatever version of the rule collected it."""
        parts = sorted({f"{e.source}:{e.turn}:{e.field}:{e.excerpt}" for e in self.evidence})
        return hashlib.sha256("\n".join([self.severity, *parts]).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Rule:
    """One deterministic rule. A change of what it finds raises `version`."""

    id: str
    version: int
    title: str
    looks_at: str
    """What it reads: patch, calls, outputs, text."""
    hazard: str
    """Honest work that comes close, and how the rule tells it apart."""
    exploits: tuple[str, ...]
    """Ids of the catalogue (docs/sandbox/grading.md) that it answers."""
    check: Callable[[Attempt], Iterator[Hit]]


def collect(rule_id: str, version: int, hits: list[Hit]) -> Finding | None:
    """One finding from the hits of a rule: the worst severity, the strongest evidence first."""
    if not hits:
        return None
    ordered = sorted(hits, key=lambda hit: (-hit.severity.rank, -hit.basis.rank))
    notes = list(dict.fromkeys(hit.note for hit in ordered))
    evidence = tuple(dict.fromkeys(hit.evidence for hit in ordered))
    return Finding(
        rule=rule_id,
        version=version,
        severity=ordered[0].severity,
        summary="; ".join(notes[:3]) + (f" and {len(notes) - 3} more" if len(notes) > 3 else ""),
        evidence=evidence[:MAX_EVIDENCE],
        hits=len(evidence),
    )
