"""What the first run of a Python suite delivers: no expectation, and every test that can be without one."""

# ruff: noqa: E501 (tests stay in one line)
from __future__ import annotations

import random

import pytest

from sandbox.grading.adapters.base import Hit
from sandbox.grading.canaries.python import PythonTests
from sandbox.grading.observations.baits import bait_siblings
from sandbox.grading.observations.plan import Plan
from sandbox.grading.observations.python_tests.isolation import Isolated, again, isolate
from sandbox.grading.observations.python_tests.python import rewrite
from sandbox.grading.observations.reports.base import Leaf, Site
from sandbox.grading.observations.reports.comparing import Noted, alike, names_of, noted_values

HEAD = "import json, pytest, unittest\nfrom prices import Price, with_tax, price\n\n"
KEPT = "\n\ndef test_kept():\n    assert with_tax(Price(20000)).cents == 23800\n"
# Each expects 119 of the product, by a way that leaves the number in the sandbox.
SHOWN: dict[str, str] = {
    "local": "def test_a():\n    wanted = Price(119)\n    assert with_tax(Price(100)) == wanted\n",
    "column": "@pytest.mark.parametrize('a, wanted', [(100, Price(119)), (200, Price(238))])\ndef test_a(a, wanted):\n    assert with_tax(Price(a)) == wanted\n",
    "loop": "def test_a():\n    for a, wanted in [(100, Price(119))]:\n        assert with_tax(Price(a)) == wanted\n",
    "fixture": "@pytest.fixture\ndef wanted():\n    return Price(119)\n\ndef test_a(wanted):\n    assert with_tax(Price(100)) == wanted\n",
    "fixture plain": "@pytest.fixture\ndef wanted():\n    return 119\n\ndef test_a(wanted):\n    assert with_tax(Price(100)).cents == wanted\n",
    "setup": "class TestIt(unittest.TestCase):\n    def setUp(self):\n        self.wanted = 119\n\n    def test_a(self):\n        self.assertEqual(with_tax(Price(100)).cents, self.wanted)\n",
    "class attr": "class TestIt:\n    CASES = [(100, 119)]\n\n    def test_a(self):\n        for a, b in self.CASES:\n            assert with_tax(Price(a)).cents == b\n",
    "local helper": "def run_case(a, b):\n    assert with_tax(Price(a)).cents == b\n\ndef test_a():\n    run_case(100, 119)\n",
    "check helper": "def check(a, b):\n    assert with_tax(Price(a)).cents == b\n\ndef test_a():\n    check(100, 119)\n",
    "truth": "def test_a():\n    assert with_tax(Price(100)).equals(Price(119))\n",
    "truth plain": "def test_a():\n    assert with_tax(Price(100)).equals(119)\n",
    "flag": "def test_a():\n    ok = with_tax(Price(100)).cents == 119\n    assert ok\n",
    "raise": "def test_a():\n    if with_tax(Price(100)).cents != 119:\n        raise AssertionError\n",
    "fail": "def test_a():\n    if with_tax(Price(100)).cents != 119:\n        pytest.fail('no')\n",
    "constant": "WANTED = Price(119)\n\ndef test_a():\n    assert with_tax(Price(100)) == WANTED\n",
    "factory": "def test_a():\n    assert with_tax(price(100)) == price(119)\n",
    "factory name": "def test_a():\n    made = with_tax(price(100))\n    wanted = price(119)\n    assert made == wanted\n",
    "operator": "def test_a():\n    assert with_tax(Price(100)) == Price(1) * 119\n",
    "text of": "def test_a():\n    assert with_tax(Price(100)).cents == Price(119).cents\n",
    "case objects": "class Case:\n    def __init__(self, net, gross):\n        self.net, self.gross = net, gross\n\nCASES = [Case(100, 119)]\n\n@pytest.mark.parametrize('case', CASES)\ndef test_a(case):\n    assert with_tax(Price(case.net)).cents == case.gross\n",
    "all": "def test_a():\n    assert all(with_tax(Price(a)).cents == b for a, b in [(100, 119)])\n",
    "helper file": "from cases import TABLE\n\ndef test_a():\n    for a, b in TABLE:\n        assert with_tax(Price(a)).cents == b\n",
    "helper module": "import cases\n\ndef test_a():\n    for a, b in cases.TABLE:\n        assert with_tax(Price(a)).cents == b\n",
    "helper function": "from cases import load\n\n@pytest.mark.parametrize('a, b', load())\ndef test_a(a, b):\n    assert with_tax(Price(a)).cents == b\n",
    "helper asserts": "from cases import agree\n\ndef test_a():\n    agree(with_tax(Price(100)), 119)\n",
    "conftest": "def test_a(gross):\n    assert with_tax(Price(100)).cents == gross\n",
    "open": "def test_a():\n    with open('golden.json') as file:\n        wanted = json.load(file)\n    assert with_tax(Price(100)).cents == wanted\n",
    "cases via print": "def test_a():\n    for a, b in [(100, 119)]:\n        print(a, b)\n        assert with_tax(Price(a)).cents == b\n",
    "isin": "def test_a():\n    assert Price(119) in [with_tax(Price(100))]\n",
    "assert helper": "def test_a():\n    np.testing.assert_allclose(with_tax(Price(100)).cents, 119)\n",
    "counted": "def test_a():\n    assert sum(1 for x in priced(1) if x == 119) == 1\n",
    "first of them": "def test_a():\n    assert len(next(x for x in priced(1) if x == 'total 119')) == 9\n",
    "by a filter": "def test_a():\n    assert len(list(filter(lambda x: x == 119, priced(1)))) == 1\n",
    "a local list": "def test_a():\n    found = [x for x in priced(1) if x.startswith('total 119')]\n    assert len(found) == 1\n",
    "a local place": "def test_a():\n    texts = priced(1)\n    at = texts.index('total 119')\n    assert at == 1\n",
    "taken out": "def test_a():\n    assert str(with_tax(1)).removeprefix('total 119').title() == 'x'\n",
    "parted": "def test_a():\n    head, _, tail = told(1).partition('total 119')\n    assert tail == 'x'\n",
    "by a pattern": "import re\n\ndef test_a():\n    assert re.sub('total 119', '', told(1)) == 'x'\n",
    "likeness": "import difflib\n\ndef test_a():\n    assert difflib.SequenceMatcher(None, told(1), 'total 119').ratio() == 1.0\n",
    "looked up": "def test_a():\n    names = {'total 119': 7}\n    assert names[told(1)] == 7\n",
    "mock": "def test_a(mocker):\n    m = mocker.Mock()\n    with_tax(m)\n    m.assert_called_once_with(119)\n",
}

RESIDUAL = {"local", "column", "loop", "fixture", "constant", "factory", "factory name", "operator", "isin"}
FILES = {
    "cases.py": "TABLE = [(100, 119)]\n\ndef load():\n    return TABLE\n\ndef agree(a, b):\n    assert a.cents == b\n",
    "conftest.py": "import pytest\n\n@pytest.fixture\ndef gross():\n    return 119\n\n@pytest.fixture\ndef other():\n    return 1\n",
}


def isolated(body: str, levels: dict[int, int], files: dict[str, str] = FILES) -> Isolated:
    source = HEAD + body + KEPT
    blank, real = (rewrite("t.py", source, levels=levels, form=form, others=files) for form in ("blank", "real"))
    shows = [("t.py", names) for names in blank.shows]
    twice = [("t.py", ("test_a",))]
    return isolate(
        {"t.py": blank.text},
        {"t.py": real.text},
        {"t.py": source, **files},
        shows=shows,
        providers=blank.providers,
        twice=twice,
    )


@pytest.mark.parametrize("name", SHOWN)
def test_no_expectation_is_in_the_first_run(name):
    levels = {0: 0} if name in RESIDUAL else {0: 1} if name == "text of" else {}
    made = isolated(SHOWN[name], levels)
    assert "119" not in made.files["t.py"]
    assert ("t.py", ("test_kept",)) in made.tests - made.deciding
    if "cases" in SHOWN[name]:
        assert "cases.py" in made.hidden or name in ("case objects", "cases via print")
    if name == "conftest":
        assert "119" not in made.files["conftest.py"] and "other" in made.files["conftest.py"]


INPUTS = {
    "round trip": "def test_a():\n    data = [1, 2]\n    assert decode(encode(data)) == data\n",
    "loop of inputs": "def test_a():\n    for a in (1, 2):\n        assert with_tax(Price(a)).cents > 0\n",
    "count": "def test_a():\n    n = 5\n    q = []\n    for i in range(n):\n        with_tax(q, i)\n    assert len(q) == n\n",
    "fixture": "@pytest.fixture\ndef shop():\n    return Price(3)\n\ndef test_a(shop):\n    assert with_tax(shop).cents == 4\n",
    "what an object is asked": "def test_a():\n    trie = Trie(['total'])\n    assert trie.find('total') == 3\n",
    "a made object's attribute": "def test_a():\n    assert Trie(['total']).words.count('total') == 1\n",
    "split at a comma": "def test_a():\n    parts = told(1).split(', ')\n    assert parts == ['a', 'b']\n",
    "without line ends": "def test_a():\n    assert told(1).replace('\\n', '').title() == 'Abc'\n",
    "filtered inputs": "def test_a():\n    data = [x for x in range(9) if x != 3]\n    assert with_tax(data) == 7\n",
    "two calls": "def test_a():\n    assert with_tax(1) == with_tax(3) - 2\n",
    "helper file": "from cases import agree\n\ndef test_a():\n    assert with_tax(Price(3)).cents == 4\n",
    "temporary file": "def test_a(tmp_path):\n    with_tax(tmp_path / 'x')\n    assert (tmp_path / 'x').read_text() == 'abc'\n",
    "table of inputs": "@pytest.mark.parametrize('a, b', [(1, 2), (3, 4)])\ndef test_a(a, b):\n    assert with_tax(a, b) == [b, a]\n",
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_are_no_expectations(name):
    made = isolated(INPUTS[name], {})
    assert ("t.py", ("test_a",)) in made.tests - made.deciding


def test_a_noted_test_stands_there_twice():
    made = isolated(SHOWN["local"], {0: 0})
    assert made.files["t.py"].count("def test_a") == 2 and again("t.py::test_a[0]") == "t.py::test_a_again[0]"


def test_what_a_subtest_is_named_by_is_not_delivered():
    source = "def test_a(self):\n    for a, b in [(1, 119)]:\n        with self.subTest('119', gross=b):\n            assert f(a) == b\n"
    assert "119" not in rewrite("t.py", source, levels={}, form="real").text


def test_a_value_that_a_variable_still_holds_is_marked():
    source = "def test_a():\n    x = 119\n    assert decode(encode(x)) == x\n    assert decode(encode(4)) == 4\n"
    assert [site.beside for site in rewrite("t.py", source, levels={}, form="real").sites] == [True, False]


def thing(**held: object) -> dict[str, object]:
    return {"o": {"t": ["prices.Price"], "h": {"d": [[name, value] for name, value in held.items()]}}}


def told(value: object) -> dict[int, list[tuple[object, object]]]:
    return noted_values([Hit(0, (value,), None)], {0})


@pytest.mark.parametrize(
    ("first", "second", "copy", "same"),
    [
        ({"i": "77"}, {"i": "77"}, {"i": "77"}, True),
        ({"i": "77"}, {"i": "78"}, {"i": "77"}, False),
        ({"i": "77"}, {"i": "78"}, {"i": "79"}, False),
        (thing(cents={"i": "77"}), thing(cents={"i": "78"}), thing(cents={"i": "77"}), False),
        (thing(cents={"i": "77"}), thing(cents={"i": "77"}, key="kept"), thing(cents={"i": "77"}), True),
        (thing(cents={"i": "77"}, key=None), thing(cents={"i": "77"}, key="kept"), thing(cents={"i": "77"}, key=None), True),
        (thing(n={"i": "2"}, c={"i": "7"}), thing(n={"i": "9"}, c={"i": "7"}), thing(n={"i": "4"}, c={"i": "7"}), True),
        (thing(n={"i": "2"}, c={"i": "7"}), thing(n={"i": "9"}, c={"i": "8"}), thing(n={"i": "4"}, c={"i": "7"}), False),
        ({"l": [thing(n={"i": "1"})]}, {"l": [thing(n={"i": "5"})]}, {"l": [thing(n={"i": "2"})]}, True),
        ({"l": [thing(n={"i": "1"})]}, {"l": []}, {"l": [thing(n={"i": "2"})]}, False),
        # The order of a set follows hashes; that of None differs from process to process.
        ({"S": [None, {"i": "2"}]}, {"S": [{"i": "2"}, None]}, {"S": [None, {"i": "2"}]}, True),
        ({"l": [{"F": [{"F": ["a", None]}, "b"]}]}, {"l": [{"F": ["b", {"F": [None, "a"]}]}]}, {"l": []}, True),
        ({"S": [None, {"i": "2"}]}, {"S": [{"i": "3"}, None]}, {"S": [None, {"i": "2"}]}, False),
        ({"l": [None, {"i": "2"}]}, {"l": [{"i": "2"}, None]}, {"l": [None, {"i": "2"}]}, False),
    ],
)  # fmt: skip
def test_objects_are_compared_by_what_they_hold_in_both_runs(first, second, copy, same):
    assert alike(told(first), told(second), 0, told(copy)) is same


def test_baits_are_the_same_whatever_is_expected():
    text = "def test_a():\n    _oc_see(0, lambda: stamp(2024, 1, 5))\n"

    def baits(condition: str) -> list[str]:
        site = Site(
            number=0, path="t.py", test=("test_a",), condition=condition, leaves=(Leaf(observed=True, source="x"),)
        )
        plan = Plan(files={"t.py": text}, ids={"t.py::test_a": "t.py::test_a"}, sites=(site,))
        return [bait.text for bait in bait_siblings(PythonTests(), plan, random.Random(3), 4)]

    assert baits("v0 == '05.01.2024'") == baits("v0 == 47") != []


def test_a_class_that_a_test_defines_has_the_same_name_in_both_runs():
    """Each run gives modules and functions of tests other names, and these are parts of what classes are called."""
    own = "tests/test_tlru.py::CacheTest::test_ttu[1]"
    runs = ("tests/test_lower.py::CacheTest::test_9f[1]", "tests/test_small.py::CacheTest::test_41[1]")

    def reported(module: str, test: str, product: str = "cachetools.Cache") -> Noted:
        local = {"k": [f"tests.{module}.CacheTest.{test}.<locals>.Key", "builtins.object"]}
        held = {"o": {"t": [f"tests.{module}.Timer"], "h": {"d": [["key", local]]}}}
        raised = {"e": {"t": [f"tests.{module}.Late", "builtins.Exception"], "m": "late"}}
        value = {"o": {"t": [product], "h": {"d": [["timer", held]]}}}
        ran = runs[0] if module == "test_lower" else runs[1]
        return noted_values([Hit(0, (value, {"t": ["text", held]}), raised)], {0}, names_of(own, ran))

    first = reported("test_lower", "test_9f")
    assert alike(first, reported("test_small", "test_41"), 0, first)
    assert not alike(first, reported("test_small", "test_41", "cachetools.Other"), 0, first), (
        "types of the product count"
    )
    assert not alike(first, reported("elsewhere", "test_41"), 0, first), "and those of other modules"
    assert names_of(own, own) == {}
    assert names_of(own, "") == {}
