"""A policy that makes no sense is refused with the field and the remedy; a sensible one survives storage."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from sandbox.network.policy import Denied, GoRules, NpmRules, PythonRules, RegistryPolicy, Rule


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PythonRules(deny=frozenset({"no/name"})), ("deny", "no/name")),
        (lambda: PythonRules(max_versions={"foo": "new"}), ("max_versions", "foo", "'new'", "1.2.3")),
        (lambda: NpmRules(max_versions={"foo": "1.2"}), ("max_versions", "foo", "'1.2'")),
        (lambda: GoRules(max_versions={"example.org/m": "latest"}), ("max_versions", "example.org/m")),
        (lambda: PythonRules(sha256={"foo": frozenset({"abc"})}), ("sha256", "foo", "64")),
        (lambda: PythonRules(sha256={"foo": frozenset()}), ("sha256",)),
        (lambda: GoRules(sha256={"example.org/m": frozenset({"a" * 64})}), ("sha256", "go.sum")),
        (lambda: PythonRules(deny_modules=frozenset({"a.b"})), ("deny_modules", "a.b")),
        (lambda: RegistryPolicy(before=datetime(2024, 1, 1)), ("before",)),
        (lambda: RegistryPolicy.model_validate({"bounds": {"requests": 0}}), ("bounds", "requests")),
        (lambda: RegistryPolicy.model_validate({"ruby": {}}), ("ruby",)),
    ],
)
def test_a_wrong_field_is_named(make: object, words: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        make()  # type: ignore[operator]
    for word in words:
        assert word in str(refused.value)


def test_names_are_normal_and_json_brings_the_policy_back() -> None:
    policy = RegistryPolicy(
        python=PythonRules(deny=frozenset({"My_Package"}), max_versions={"Other.Thing": "2"}),
        npm=NpmRules(deny=frozenset({"@Scope/X"})),
        go=GoRules(deny=frozenset({"example.org/Mod/v3"})),
        before=datetime(2024, 5, 1, tzinfo=UTC),
    )
    assert policy.python and policy.npm and policy.go
    assert (policy.python.deny, policy.python.max_versions) == ({"my-package"}, {"other-thing": "2"})
    assert policy.npm.deny == {"@scope/x"} and policy.go.deny == {"example.org/mod"}
    assert RegistryPolicy.model_validate_json(policy.model_dump_json()) == policy


def test_dates() -> None:
    cut = datetime(2024, 5, 1, tzinfo=UTC)
    policy = RegistryPolicy(before=cut)
    assert policy.date_rule(datetime(2024, 4, 30, 23, 59, tzinfo=UTC)) is None
    assert policy.date_rule(cut) == Rule.DATE and policy.date_rule(None) == Rule.UNDATED
    assert RegistryPolicy(before=cut, undated="allow").date_rule(None) is None
    assert RegistryPolicy().date_rule(None) is None


def test_the_target_of_a_task_is_denied_under_all_its_names() -> None:
    rules = PythonRules(deny=frozenset({"Beautiful_Soup4", "bs4"}), deny_modules=frozenset({"bs4"}))
    assert rules.deny == {"beautiful-soup4", "bs4"}
    for name in rules.deny:
        with pytest.raises(Denied):
            rules.allow_package(name)
    rules.allow_package("requests")
