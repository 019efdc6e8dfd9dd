"""Every rule, once. A new family is a file in `rules/` and a line here."""

from __future__ import annotations

import hashlib

from sandbox.grading.audit.rules.access import leaks, lookup, network, process
from sandbox.grading.audit.rules.base import Rule
from sandbox.grading.audit.rules.product import (
    adaptive,
    answers,
    claims,
    context,
    elsewhere,
    guards,
    measured,
    objects,
    odd_paths,
    shortcuts,
    special_cases,
    stubs,
    surroundings,
    swallowed,
    unfinished,
)
from sandbox.grading.audit.rules.testing import (
    demands,
    expected,
    forging,
    framework,
    helpers,
    runner,
    startup,
    tests,
    toolchain,
    weakened,
)
from sandbox.grading.verdict.findings import Rule as GradingRule

FAMILIES = (
    tests,
    weakened,
    runner,
    startup,
    process,
    framework,
    forging,
    lookup,
    leaks,
    network,
    special_cases,
    answers,
    expected,
    stubs,
    elsewhere,
    shortcuts,
    swallowed,
    guards,
    toolchain,
    claims,
    measured,
    unfinished,
    demands,
    surroundings,
    context,
    objects,
    odd_paths,
    adaptive,
    helpers,
)
RULES: dict[str, Rule] = {rule.id: rule for family in FAMILIES for rule in family.RULES}
assert len(RULES) == sum(len(family.RULES) for family in FAMILIES), "two rules have one id"

GRADING_VERSION = 5

TITLES: dict[str, str] = {
    **{rule.value: rule.value.replace("-", " ").capitalize() for rule in GradingRule},
    **{rule.id: rule.title for rule in RULES.values()},
    "lone-signal": "Passes with a means that no other rollout of the group used",
    "lone-approach": "Passes by changing what no other rollout of the group changed",
}
"""Every rule that may raise a finding, by id → what people read."""


def rule_set() -> str:
    """Names the versions of all rules: an attempt audited under the same name need not be audited again."""
    text = " ".join(f"{rule.id}:{rule.version}" for rule in RULES.values()) + f" grading:{GRADING_VERSION}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
