"""Observed tests without a sandbox: rewritten, run against right and wrong products, judged outside."""

from __future__ import annotations

import ast
import datetime
import decimal
import fractions
import json
import textwrap
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.adapters.base import Hit
from sandbox.grading.observations.plan import TestRun, make_plan
from sandbox.grading.observations.python_tests.python import rewrite
from sandbox.grading.observations.reports import judge
from sandbox.grading.observations.reports.base import Expected, Leaf, Site
from sandbox.grading.observations.reports.judge import Unjudgeable, holds, judge_hit, judge_test
from sandbox.grading.observations.reports.operations import is_tame
from sandbox.grading.observations.reports.values import Opaque, Unreadable, Value, decode, is_plain
from sandbox.tasks.spec import PytestVerifier

RUNNERS = Path(judge.__file__).parents[2] / "runners"
RUNNER = "".join((RUNNERS / name).read_text(encoding="utf-8") for name in ("encoding.py", "observing.py"))


def observer():
    """The runner's functions, with the list of what they report."""
    space: dict[str, Any] = {}
    exec(RUNNER, space)
    hits: list[Hit] = []

    def report(site, values, raised):
        sent = json.loads(json.dumps([values, raised]))
        hits.append(Hit(site, tuple(sent[0]), sent[1]))

    return space["make_observer"](report), hits


def encoded(value: Any) -> Any:
    see, hits = observer()
    see["_oc_see"](0, lambda: value)
    return hits[0].values[0]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)  # fmt: skip


@given(PLAIN)
def test_plain_data_crosses_the_border_unchanged(value):
    data = encoded(value)
    found = decode(data).content
    assert found == value and type(found) is type(value) and is_plain(data)
    if not isinstance(value, frozenset):
        assert repr(decode(encoded([value])).content) == repr([value]) or "frozenset" in repr(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), datetime.timedelta(1, 2), decimal.Decimal("1.50"),
        fractions.Fraction(1, 3), PurePosixPath("a/b"), range(3, 9, 2), ..., NotImplemented, 1 + 2j, bytearray(b"x"),
    ],
)  # fmt: skip
def test_values_of_the_standard_library_cross_the_border(value):
    assert decode(encoded(value)).content == value


def test_subclasses_are_told_by_their_built_in_content():
    point = namedtuple("point", "x y")
    for value in (point(1, 2), OrderedDict(a=1), defaultdict(int, a=1)):
        found = decode(encoded(value))
        assert found.content == value and found.types is not None
        assert found.types.names[0].endswith(type(value).__qualname__)


class Liar(int):
    """Everything that may be overridden answers what is wanted."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__

    def __repr__(self) -> str:
        return "47"

    def __int__(self) -> int:
        return 47

    def __index__(self) -> int:
        return 47

    def __format__(self, spec: str) -> str:
        return "47"

    def __add__(self, other: int) -> int:
        return 47

    def __reduce__(self):
        return int, (47,)


def test_objects_that_lie_are_told_by_their_built_in_content():
    assert decode(encoded(Liar(3))).content == 3


def test_objects_of_the_product_are_opaque():
    class Thing:
        def __bool__(self):
            raise RuntimeError

        def __getattribute__(self, name):
            raise RuntimeError(name)

    found = decode(encoded(Thing())).content
    assert isinstance(found, Opaque) and found.truth is None and not is_plain(encoded([Thing()]))


def test_what_claims_to_be_built_in_is_not():
    fake = type("dict", (), {"__module__": "builtins"})
    value = decode(encoded(fake()))
    assert not holds("isinstance(v0, v1)", {"v0": value, "v1": decode(encoded(dict))})
    assert holds("isinstance(v0, v1)", {"v0": decode(encoded({})), "v1": decode(encoded(dict))})


def test_endless_and_huge_values_are_cut():
    loop: list[Any] = []
    loop.append(loop)
    for value in (loop, list(range(10**5)), "x" * 10**6, {"a": b"x" * 10**7}):
        assert not is_plain(encoded(value))


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=5) | st.integers() | st.floats(), lambda i: (
    st.lists(i, max_size=3) | st.dictionaries(st.sampled_from(list("ifltSFdbcxskeoz")), i, max_size=2)
), max_leaves=10))  # fmt: skip
def test_no_report_is_too_strange_to_be_read(data):
    try:
        value = decode(data)
    except Unreadable:
        return
    assert isinstance(value, Value)
    site = Site(number=0, path="t.py", test=("t",), condition="v0 == 1", leaves=(Leaf(observed=True, source="x"),))
    assert isinstance(judge_hit(site, Expected(site=0), Hit(0, (data,), None)), str)


def test_a_report_that_cannot_be_shown_is_a_failure():
    site = Site(number=0, path="t.py", test=("t",), condition="v0 == 1", leaves=(Leaf(observed=True, source="x"),))
    assert judge_hit(site, Expected(site=0), Hit(0, ({"i": "f" * 9000},), None))


def test_many_keys_of_one_hash_are_refused():
    keys = [[{"i": f"{k * ((1 << 61) - 1):x}"}, None] for k in range(1, 20_000)]
    with pytest.raises(Unreadable):
        decode({"d": keys})


@pytest.mark.parametrize(
    "condition",
    [
        "v0.__class__",
        "open('x')",
        "__import__('os')",
        "[].append(1)",
        "2 ** 10 ** 9",
        "'a' * 10 ** 9",
        "v0.format(1)",
        "v9",
    ],
)
def test_only_plain_operations_are_judged(condition):
    with pytest.raises(Unjudgeable):
        holds(condition, {"v0": Value("x")})


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(?:a*)*", ".*.*.*.*x", r"(a)\1+", "("])
def test_patterns_that_may_take_long_are_not_searched(pattern):
    assert not is_tame(pattern)


THING = """
class Thing:
    name = "x"
    def __init__(self, n):
        self.n = n
    def size(self):
        return self.n
"""
PAIR = """
class P:
    def __init__(self, n):
        self.n = n
    def __add__(self, other):
        return P(self.n + other.n)
    def __eq__(self, other):
        return self.n == other.n
"""
# (the body of a test, a product that is right, products that are wrong)
CASES = {
    "equality": (
        "assert f(2) == 4",
        "def f(x): return x * 2",
        ["def f(x): return x + 3", "def f(x): raise ValueError"],
    ),
    "literal first": ("assert 4 == f(2)", "def f(x): return 4", ["def f(x): return 5"]),
    "type": ("assert f(1) is True", "def f(x): return True", ["def f(x): return 1"]),
    "none": ("assert f(1) is None", "def f(x): return None", ["def f(x): return 0"]),
    "truth": ("assert f(1)", "def f(x): return [0]", ["def f(x): return []"]),
    "not": ("assert not f(1)", "def f(x): return []", ["def f(x): return [0]"]),
    "and": ("assert f(1) == 1 and f(2) == 2", "def f(x): return x", ["def f(x): return 1"]),
    "or": ("assert f(1) == 1 or f(2) == 3", "def f(x): return x", ["def f(x): return 0"]),
    "in": ("assert 'b' in f('ab')", "def f(x): return x", ["def f(x): return 'a'"]),
    "order": ("assert 1 < f(2) <= 3", "def f(x): return x", ["def f(x): return 9", "def f(x): return 'a'"]),
    "length": ("assert len(f(2)) == 2", "def f(x): return [1] * x", ["def f(x): return [1]"]),
    "sorted": ("assert sorted(f(2)) == [1, 2]", "def f(x): return {2, 1}", ["def f(x): return [1]"]),
    "subscript": (
        "assert f(2)[1] == 5",
        "def f(x): return [0, 5]",
        ["def f(x): return [5]", "def f(x): return [5, 0]"],
    ),
    "method": ("assert f(2).startswith('ab')", "def f(x): return 'abc'", ["def f(x): return 'ba'"]),
    "isinstance": ("assert isinstance(f(2), (list, dict))", "def f(x): return {}", ["def f(x): return ()"]),
    "name": ("got = f(2)\nassert got == 4\nassert got != 5", "def f(x): return 4", ["def f(x): return 5"]),
    "expected name": (
        "expected = [1, 2]\nassert f(2) == expected",
        "def f(x): return [1, 2]",
        ["def f(x): return [2]"],
    ),
    "loop": ("for a, b in [(1, 2), (3, 6)]:\n    assert f(a) == b", "def f(x): return 2 * x", ["def f(x): return 2"]),
    "computed loop": ("for a in f(3):\n    assert a > 0", "def f(x): return [1] * x", ["def f(x): return [0]"]),
    "computed": ("assert f(2) == 'ab' * 2 + str(1)", "def f(x): return 'abab1'", ["def f(x): return 'abab'"]),
    "approx": ("assert f(2) == pytest.approx(0.3)", "def f(x): return 0.1 + 0.2", ["def f(x): return 0.4"]),
    "approx list": (
        "assert f(2) == pytest.approx([0.3, 1], rel=0.1)",
        "def f(x): return [0.31, 1]",
        ["def f(x): return [0.4, 1]"],
    ),
    "raises": (
        "with pytest.raises(ValueError):\n    f(2)",
        "def f(x): raise ValueError('no')",
        ["def f(x): raise KeyError('no')", "def f(x): pass"],
    ),
    "raises subclass": (
        "with pytest.raises(LookupError):\n    f(2)",
        "def f(x): raise KeyError('no')",
        ["def f(x): raise ValueError('no')"],
    ),
    "raises match": (
        "with pytest.raises(ValueError, match='b.d'):\n    f(2)",
        "def f(x): raise ValueError('bad')",
        ["def f(x): raise ValueError('no')"],
    ),
    "raises value": (
        "with pytest.raises(ValueError) as e:\n    f(2)\nassert str(e.value) == 'bad'",
        "def f(x): raise ValueError('bad')",
        ["def f(x): raise ValueError('no')"],
    ),
    "raises own": (
        "with pytest.raises(Bad):\n    f(2)",
        "class Bad(Exception): pass\ndef f(x): raise Bad",
        ["class Bad(Exception): pass\ndef f(x): raise ValueError"],
    ),
    "mutated argument": (
        "data = [1]\nf(data)\nassert data == [1, 2]",
        "def f(x): x.append(2)",
        ["def f(x): x.append(3)"],
    ),
    "two calls": ("assert f(1) == f(3) - 2", "def f(x): return x", ["def f(x): return 7"]),
    "method of an object": (
        "t = Thing(3)\nassert t.size() == 3\nassert t.name == 'x'",
        THING,
        [THING.replace('"x"', '"y"')],
    ),
    "walrus": ("assert (y := f(2)) == 4\nassert y == 4", "def f(x): return 4", ["def f(x): return 5"]),
    "unittest style": (
        "T.assertEqual(f(2), 4)\nT.assertIn(f(1), [3])",
        "def f(x): return x + 2",
        ["def f(x): return 4"],
    ),
    "almost": (
        "T.assertAlmostEqual(f(2), 0.3)\nT.assertCountEqual([f(1), 2], [2, f(2)])",
        "def f(x): return 0.1 + 0.2",
        ["def f(x): return 0.4"],
    ),
    "regular expression": ("T.assertRegex(f(2), 'a.c')", "def f(x): return 'xabc'", ["def f(x): return 'xab'"]),
    "objects": ("assert P(1) + P(2) == P(3)", PAIR, [PAIR.replace("self.n + other.n", "1")]),
}
RESIDUAL = {"objects"}
"""Decided inside: what is compared is no plain data."""


class Harness:
    """What `grade` does, with `exec` in place of sandboxes."""

    def __init__(self, body: str, right: str) -> None:
        self.source = f"import pytest\n\n\ndef test_it():\n{textwrap.indent(body, '    ')}\n"
        self.right = right
        self.verifier = PytestVerifier(test_files={"t.py": self.source}, fail_to_pass=("t.py::test_it",))

    def run(self, text: str, product: str) -> tuple[str, list[Hit]]:
        """(why the test failed inside, its reports)."""
        functions, hits = observer()
        space: dict[str, Any] = {**functions}
        exec(product, space)
        import unittest

        space["T"] = unittest.TestCase()
        try:
            exec(text, space)
            space["test_it"]()
        except BaseException as error:  # noqa: BLE001 - pytest's own are none of Exception
            return f"{type(error).__name__}: {error}", hits
        return "", hits

    async def trial(self, trial) -> TestRun:
        from sandbox.grading.adapters.base import Case

        error, hits = self.run(trial.modules["t.py"], self.right)
        return TestRun(
            cases={"t.py::test_it": Case("failed" if error else "passed", error)},
            observed={"t.py::test_it": hits},
            finished=True,
        )


@pytest.mark.parametrize("name", CASES)
async def test_an_observed_test_says_what_the_test_says(name):
    body, right, wrong = CASES[name]
    harness = Harness(body, right)
    plan = await make_plan(harness.verifier, harness.trial)
    assert plan is not None
    assert bool(plan.residual) is (name in RESIDUAL), plan.files
    sites = {site.number: site for site in plan.sites}
    for product, passes in [(right, True), *((text, False) for text in wrong)]:
        assert (harness.run(harness.source, product)[0] == "") is passes, "the case itself is wrong"
        error, hits = harness.run(plan.files["t.py"], product)
        why = error or judge_test(sites, plan.expected["t.py::test_it"], hits)
        assert (why == "") is passes, (why, plan.files)


EXPECTED = ("41", "'answer'", "'column'", "8.25", "'constant'", "'in a loop'", "KeyError", "'pattern'")
SECRETS = """
import pytest
from product import f, Thing

TABLE = 'constant'
ROWS = [(1, 'column'), (2, 'column')]


def test_a():
    \"\"\"Gives 'answer'.\"\"\"
    assert f(1) == 41  # 'answer'
    expected = {'k': 'answer'}
    assert f(2) == expected
    assert f(3) == TABLE


@pytest.mark.parametrize("a, b", [pytest.param(1, 'column', id="'answer'"), (2, 8.25)], ids=["'column'", "8.25"])
def test_b(a, b):
    assert f(a) == b


@pytest.mark.parametrize("a, b", ROWS)
def test_c(a, b):
    assert f(a) == b
    for x, y in [(1, 'in a loop')]:
        assert f(x) == y
    with pytest.raises(KeyError, match='pattern'):
        f(4)
"""


def test_nothing_of_an_expectation_is_delivered():
    text = rewrite("t.py", SECRETS, levels={}, form="real").text
    assert [secret for secret in EXPECTED if secret in text] == []
    ast.parse(text)


def test_what_a_test_reads_from_a_file_is_reported_and_the_constant_beside_it_withheld():
    source = """
import ast
from pathlib import Path

PARAMETERS = 'sizes, count=1'


def defined_in(path):
    return [node for node in ast.parse(Path(path).read_text()).body if isinstance(node, ast.FunctionDef)]


def test_it():
    assert [ast.unparse(node.args) for node in defined_in('new.py')] == [PARAMETERS]
"""
    rewritten = rewrite("t.py", source, levels={}, form="real")
    (site,) = rewritten.sites
    assert [leaf.observed for leaf in site.leaves] == [True, False]
    assert "count=1" not in rewritten.text


def test_inputs_are_delivered():
    source = "from product import f\n\n\ndef test_a():\n    x = 3\n    y = [4]\n    assert f(x, y) == x\n    assert y == [4, 5]\n"
    text = rewrite("t.py", source, levels={}, form="real").text
    assert "x = 3" in text and "y = [4]" in text


def test_a_report_that_is_missing_or_too_many_fails():
    site = Site(number=0, path="t.py", test=("t",), condition="v0 == 1", leaves=(Leaf(observed=True, source="f()"),))
    good = Hit(0, ({"i": "1"},))
    sites = {0: site, 1: site.model_copy(update={"number": 1})}
    expected = (Expected(site=0), Expected(site=0))
    assert judge_test(sites, expected, [good, good]) == ""
    for hits in (
        [],
        [good],
        [good] * 3,
        [good, good, Hit(1, ())],
        [good, Hit(0, ())],
        [good, Hit(0, ({"i": "1"}, None))],
    ):
        assert judge_test(sites, expected, hits)
    loose = site.model_copy(update={"repeats": True})
    assert judge_test({0: loose}, expected, [good] * 3) == "" and judge_test({0: loose}, expected, [])
