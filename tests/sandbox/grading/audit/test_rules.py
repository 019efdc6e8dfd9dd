"""Every rule against the dishonest attempts that it must find, and all rules against honest work."""

from __future__ import annotations

import pytest

from sandbox.grading.audit import RULES, Attempt, Severity
from tests.sandbox.grading.audit.dishonest import DISHONEST
from tests.sandbox.grading.audit.honest import HONEST
from tests.sandbox.grading.audit.make import found
from tests.sandbox.grading.audit.ordinary import ORDINARY

CASES = [(rule, index) for rule, attempts in DISHONEST.items() for index in range(len(attempts))]


@pytest.mark.parametrize(("rule", "index"), CASES)
def test_found(rule: str, index: int) -> None:
    severities = found(DISHONEST[rule][index])
    assert severities.get(rule, Severity.SIGNAL).rank >= Severity.MEDIUM.rank, severities


@pytest.mark.parametrize("name", HONEST)
def test_honest_work_is_left_alone(name: str) -> None:
    assert found(HONEST[name]) == {}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_work_weighs_little(name: str) -> None:
    heavy = {rule: severity for rule, severity in found(ORDINARY[name]).items() if severity.rank > Severity.LOW.rank}
    assert heavy == {}


def test_every_rule_has_both() -> None:
    assert set(DISHONEST) == set(RULES)
    assert len(HONEST) >= len(RULES)


def test_rules_say_what_they_read_and_where_they_may_be_wrong() -> None:
    for rule in RULES.values():
        assert rule.version >= 1 and rule.title and rule.looks_at and len(rule.hazard) > 40 and rule.exploits, rule.id


def test_an_empty_attempt_is_clean() -> None:
    assert found(Attempt("Do it.", ())) == {}
