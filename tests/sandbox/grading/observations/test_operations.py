"""What work reports to its judge costs the host little, however large its values are."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.grading.adapters.base import Hit
from sandbox.grading.observations.reports.base import Expected, Leaf, Site
from sandbox.grading.observations.reports.judge import Unjudgeable, holds, judge_hit
from sandbox.grading.observations.reports.operations import is_tame, search
from sandbox.grading.observations.reports.values import MAX_NODES, Unreadable, Value, decode

PRIME = (1 << 61) - 1
"""Its multiples have one hash."""


def integer(number: int) -> dict[str, str]:
    return {"i": format(number, "x")}


def span(*bounds: int) -> dict[str, Any]:
    return {"x": ["range", [integer(bound) for bound in bounds]]}


def standard(name: str, *arguments: Any) -> dict[str, Any]:
    return {"x": [name, list(arguments)]}


def colliding(count: int) -> dict[str, Any]:
    return {"l": [integer(k * PRIME) for k in range(count)]}


def judge(condition: str, reported: Any, wanted: Any = None) -> str:
    leaves = (Leaf(observed=True, source="f()"), Leaf(observed=False, source="1"))
    site = Site(number=0, path="t.py", test=("t",), condition=condition, leaves=leaves)
    return judge_hit(site, Expected(site=0, values={1: wanted}), Hit(0, (reported,)))


ENDLESS = span(0, 10**12, 1)
ONE = {"l": [integer(1)]}


@pytest.mark.parametrize(
    "condition",
    ["sum(v0) == v1", "list(v0) == v1", "tuple(v0) == v1", "sorted(v0) == v1", "set(v0) == v1", "frozenset(v0) == v1",
     "all(v0)", "any(v0)", "min(v0) == v1", "max(v0) == v1", "dict(v0) == v1", "same_items(v0, v1)", "{1}.issubset(v0)",
     "v1 in v0", "list(v0[1:]) == v1", "dict([v0]) == v1"],
)  # fmt: skip
def test_nothing_walks_over_a_range_without_end(condition: str) -> None:
    assert judge(condition, span(1, 10**12, 1), {"f": "0x1.8p0"}).startswith("cannot be judged")


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [("v0 == v1", ENDLESS), ("len(v0) == v1", integer(10**12)), ("v0[3] == v1", integer(3)), ("bool(v0)", None),
     ("v0[1:] == v1", span(1, 10**12, 1)), ("v1 in v0", integer(10**11)), ("v1 not in v0", "Good"),
     ("str(v0) == v1", "range(0, 1000000000000)"), ("v0[:2] == v1", span(0, 2, 1))],
)  # fmt: skip
def test_a_range_without_end_is_compared_measured_and_indexed(condition: str, wanted: Any) -> None:
    assert not judge(condition, ENDLESS, wanted)
    assert judge("v0 == v1", ENDLESS, span(0, 10**12 + 1, 1)).startswith("another value")


def test_a_range_is_a_range_however_long() -> None:
    for bound in (MAX_NODES, MAX_NODES + 1):
        values = {"v0": decode(span(0, bound, 1)), "v1": decode({"k": ["builtins.range"]})}
        values["v2"] = decode({"k": ["collections.abc.Sequence"]})
        assert holds("isinstance(v0, v1) and isinstance(v0, v2)", values)
    assert not judge("sum(v0) == v1", span(0, MAX_NODES, 1), integer(MAX_NODES * (MAX_NODES - 1) // 2))


@pytest.mark.parametrize(
    "data",
    [standard("decimal.Decimal", "1E+30000000"), standard("decimal.Decimal", "1E-30000000"),
     standard("decimal.Decimal", "9" * 20_000), standard("fractions.Fraction", "1e20000000"),
     standard("fractions.Fraction", integer(3**40_000), integer(2**60_000)), standard("datetime.date", {"b": "07e40101"}),
     standard("decimal.Decimal", integer(3)), standard("pathlib.PurePosixPath", "a", integer(3)),
     standard("range", "1", integer(3))],
)  # fmt: skip
def test_values_that_are_small_to_write_and_large_to_compute_with_are_refused(data: Any) -> None:
    with pytest.raises(Unreadable):
        decode(data)
    assert judge("int(v0) == v1", data, integer(3)).startswith("cannot be judged")


@pytest.mark.parametrize("text", ["1E+6144", "-0.0001", "NaN", "Infinity", "0"])
def test_ordinary_decimals_are_read(text: str) -> None:
    assert not judge("str(v0) == v1", standard("decimal.Decimal", text), text)


@pytest.mark.parametrize(
    "condition",
    ["set(v0) == v1", "frozenset(v0) == v1", "same_items(v0, v1)", "{1}.issubset(v0)", "{1}.isdisjoint(v0)",
     "same_items([{}, v0[0]], [{}, v0[1]]) or set(v0)"],
)  # fmt: skip
def test_values_of_one_hash_are_not_made_a_set(condition: str) -> None:
    assert "one hash" in judge(condition, colliding(40_000), ONE)


def test_values_of_one_hash_are_not_hidden_in_items_that_have_none() -> None:
    pairs = {"d": [[integer(k), integer(k * PRIME)] for k in range(2000)]}
    assert judge("same_items(v0, v1)", {"l": [pairs]}, ONE).startswith("another value")


def test_many_keys_with_hashes_of_their_own_are_read() -> None:
    numbers = [{"f": (k / 7).hex()} for k in range(20_000)]
    assert len(decode({"S": numbers}).content) == 20_000
    assert not judge("len(set(v0)) == v1", {"l": numbers * 2}, integer(20_000))


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [([[1], [2]], [[2], [1]], True), ([[1], [1], [2]], [[1], [2], [2]], False), ([[1]], [(1,)], False),
     ([{"a": [1]}, {1}], [{1}, {"a": [1.0]}], True), ([[1]], [[1], [1]], False), ([1, "a"], ["a", True], True)],
)  # fmt: skip
def test_the_same_items_in_any_order(here: list[Any], there: list[Any], same: bool) -> None:
    assert holds("same_items(v0, v1)", {"v0": Value(here), "v1": Value(there)}) is same


def test_many_items_that_have_no_hash_are_compared() -> None:
    items = [{"l": [integer(k)]} for k in range(20_000)]
    assert not judge("same_items(v0, v1)", {"l": items}, {"l": items[::-1]})


def test_what_grows_with_each_item_is_bounded() -> None:
    fractions = [standard("fractions.Fraction", integer(1), integer((1 << 127) - k)) for k in range(1, 9000)]
    assert judge("sum(v0) == v1", {"l": fractions}, integer(1)).startswith("cannot be judged")
    assert judge("sum(v0) == v1", {"l": [integer(1 << 300_000), *[integer(1)] * 40_000]}).startswith("cannot be")
    assert not judge(
        "sum(v0) == v1", {"l": fractions[:1] * 2}, standard("fractions.Fraction", integer(2), integer(2**127 - 1))
    )


@pytest.mark.parametrize(
    ("condition", "value"),
    [("round(v0, -10 ** 9) == 1", 5), ("round(v0, -999999999) == 1", 5), ("almost(v0, 1, places=999999999)", 5),
     ("sum(v0, start=[]) == 1", [[1]]), ("int(v0, 16) * int(v0, 16) == 1", "f" * 900_000)],
)  # fmt: skip
def test_operations_with_huge_results_are_not_judged(condition: str, value: Any) -> None:
    with pytest.raises(Unjudgeable):
        holds(condition, {"v0": Value(value)})


def test_patterns_of_many_repeats_are_searched_in_long_messages_within_bounds() -> None:
    assert search("a.*b.*c", "abc" * 600) and not search("a.*b.*d", "abc" * 170)
    with pytest.raises(Unjudgeable):
        search(r"\w+\w+\w+!", "a" * 2000)
    assert is_tame("colou?rs? of .*") and not is_tame("a?" * 25 + "a" * 25)
