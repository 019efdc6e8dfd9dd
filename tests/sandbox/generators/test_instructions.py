"""Three styles from the same evidence, none of which tells the answer."""

import random

import pytest

from sandbox.generators.building.drafts import Draft
from sandbox.generators.building.instructions import (
    STYLES,
    Evidence,
    error_lines,
    evidence_of,
    hurried,
    leaks_answer,
    write,
)
from tests.sandbox.generators.test_pruning import TESTS

ACCOUNT = """t.py:18: in test_d
    assert 1 == 2
E   assert 1 == 2
E    +  where 1 = shelved()
shop.py:3: in shelved
    return value - 1
"""
GOLD = "def shelved(value):\n    return value + 1  # as the manual says\n"
DRAFT = Draft(
    source="mutation", category="debug", operator="arithmetic", broken={"shop.py": GOLD.replace("+", "-")},
    gold={"shop.py": GOLD}, expected=("t.py::TestC::test_d",), family="shop:shop.py:shelved", functions=("shelved",),
)  # fmt: skip
FEATURE = 'def widest(sizes, limit=100):\n    """The widest size below `limit`."""'


def evidence() -> Evidence:
    failures = {"t.py::TestC::test_d": ACCOUNT, "t.py::TestF::test_d": ACCOUNT}
    found = evidence_of("shop", DRAFT, failures, lambda path: TESTS)
    assert found is not None
    return found


def test_the_shortest_failing_test_is_shown():
    assert evidence().test == "def test_d(self):\n    assert 1 == 2"
    assert evidence().error == "assert 1 == 2\n+  where 1 = shelved()"


def test_the_line_that_fails_is_quoted():
    assert evidence().line == "assert 1 == 2"
    assert "It fails at `assert 1 == 2`" in write(evidence(), "precise", random.Random(0))


def test_a_test_that_shows_what_fails_goes_before_a_shorter_one():
    source = "def test_short(made):\n    made()\n\n\ndef test_long():\n    value = shelved()\n    assert value == 2\n"
    failures = {
        "t.py::test_short": "conftest.py:4: in made\n    assert shelved() == 2\nE   assert 1 == 2",
        "t.py::test_long": "t.py:7: in test_long\n    assert value == 2\nE   assert 1 == 2",
    }
    found = evidence_of("shop", DRAFT, failures, lambda path: source)
    assert found is not None
    assert (found.test_id, found.line) == ("t.py::test_long", "assert value == 2")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("benchmarks/test_speed.py", "def test_a():\n    assert shelved() == 2\n"),
        ("tests/test_speed.py", "def test_a(benchmark):\n    assert benchmark(shelved) == 2\n"),
    ],
)
def test_a_benchmark_is_never_shown(path, source):
    account = f"{path}:2: in test_a\n    assert shelved() == 2\nE   assert 1 == 2"
    assert evidence_of("shop", DRAFT, {f"{path}::test_a": account}, lambda path: source) is None


def test_nothing_is_shown_without_an_error():
    assert error_lines("nothing") == ""
    assert evidence_of("shop", DRAFT, {"t.py::test_b": "no error"}, lambda path: TESTS) is None


@pytest.mark.parametrize("style", STYLES)
def test_a_style_is_repeatable_and_tells_no_line_of_the_oracle(style):
    for seed in range(20):
        text = write(evidence(), style, random.Random(seed))
        assert text == write(evidence(), style, random.Random(seed))
        assert leaks_answer(text, DRAFT, evidence()) == ""
        assert "as the manual says" not in text


def test_the_styles_differ_as_they_should():
    precise, issue, terse = (write(evidence(), style, random.Random(1)) for style in STYLES)
    assert "value - 1" not in precise and "def test_d" in precise
    assert "**Traceback**" in issue and "shop.py:3: in shelved" in issue
    assert len(terse) < 160 < len(precise) and terse == terse.lower()
    assert len({write(evidence(), "terse", random.Random(seed)) for seed in range(20)}) > 5


def test_hurry_leaves_code_alone():
    for seed in range(30):
        said = hurried("Please Repair `Shelf.Put(Wide)` Because Everything Fails.", random.Random(seed))
        assert "`Shelf.Put(Wide)`" in said and said.replace("`Shelf.Put(Wide)`", "").islower()


@pytest.mark.parametrize("style", STYLES)
def test_a_feature_is_described_by_its_head(style):
    draft = Draft(
        source="deletion", category="feature", operator="function", broken={"shop.py": ""}, gold={"shop.py": GOLD},
        expected=(), family="", functions=("widest",), summary=FEATURE,
    )  # fmt: skip
    found = evidence_of("shop", draft, {}, lambda path: "")
    assert found is not None
    text = write(found, style, random.Random(0))
    assert "widest(sizes, limit=100)" in text and "shop.py" in text
    assert leaks_answer(text, draft, found) == ""


def test_what_tells_the_answer_is_named():
    assert leaks_answer("use `return value + 1  # as the manual says`", DRAFT, evidence()).startswith(
        "return value + 1"
    )
    hidden = Evidence("shop", "t.py::test_b", "def test_b():\n    pass", "assert 1 == 2", "E assert 1 == 2")
    assert leaks_answer("look into shelved()", DRAFT, hidden) == "shelved"
    assert leaks_answer("look into it", DRAFT, hidden) == ""
