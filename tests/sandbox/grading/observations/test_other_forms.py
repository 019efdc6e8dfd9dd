"""Right work whose values have other types than the oracle's where nothing asks for a type, and what only claims to be right."""

from __future__ import annotations

import pytest

from sandbox.grading.observations.plan import make_plan
from sandbox.grading.observations.reports.comparing import alike
from sandbox.grading.observations.reports.judge import judge_test
from tests.sandbox.grading.observations.test_observations import Harness

WORDS = """
import collections.abc
class Words(collections.abc.Sequence):
    def __init__(self, items):
        self._items = items
    def __len__(self):
        return len(self._items)
    def __getitem__(self, index):
        return self._items[index]
"""
TEXT = "class Text:\n    def __init__(self, text): self.text = text\n    def __str__(self): return self.text\n"
NUMBER = """
class Number:
    def __int__(self): return 12
    def __float__(self): return 12.5
    def __abs__(self): return 7
"""
MAPPING = "import collections\nclass Table(collections.UserDict): pass\n"
LIAR = """
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __eq__
    __hash__ = None
    def __len__(self): return 1
    def __iter__(self): return iter([Liar()])
    def __getitem__(self, key): return Liar()
"""
GENERATES = "def f(x): yield from x.split()"
ITERATES = "def f(x): return iter(x.split())"
DEQUE = "import collections\ndef f(x): return collections.deque(x.split())"
SEQUENCE = WORDS + "def f(x): return Words(x.split())"
KEYS = "def f(x): return dict.fromkeys(x.split()).keys()"
LIST = "def f(x): return x.split()"
LIES = LIAR + "def f(x): return Liar()"
SHORT = "def f(x): yield from x.split()[1:]"
# (the body of a test, the oracle's product, others that are right, others that are wrong)
CASES = {
    "list": ("assert list(f('b a')) == ['b', 'a']", LIST, [GENERATES, ITERATES, DEQUE, SEQUENCE, KEYS], [SHORT, LIES]),
    "sorted": ("assert sorted(f('b a')) == ['a', 'b']", LIST, [GENERATES, ITERATES, SEQUENCE, KEYS], [SHORT, LIES]),
    "set": ("assert set(f('b a')) == {'a', 'b'}", LIST, [GENERATES, DEQUE, SEQUENCE], [SHORT, LIES]),
    "sum": (
        "assert sum(f(4)) == 6",
        "def f(x): return range(x)",
        ["def f(x): return (n for n in range(x))"],
        ["def f(x): return (n for n in range(9))"],
    ),
    "any": (
        "assert any(f(4))",
        "def f(x): return range(x)",
        ["def f(x): return (n for n in range(x))"],
        ["def f(x): return (0 for n in range(9))"],
    ),
    "length": (
        "assert len(f('b a')) == 2",
        LIST,
        [DEQUE, SEQUENCE, KEYS],
        [LIES, GENERATES, DEQUE.replace("x.", "(x + ' c').")],
    ),
    "length alone": (
        "assert len(f('b a')) == 2",
        LIST,
        ["class Sized:\n    def __len__(self): return 2\ndef f(x): return Sized()"],
        ["class Sized:\n    def __len__(self): return 3\ndef f(x): return Sized()"],
    ),
    "in": (
        "assert 'a' in f('b a')\nassert 'c' not in f('b a')",
        LIST,
        [DEQUE, SEQUENCE, KEYS],
        [LIES, DEQUE + ", 'c'"],
    ),
    "subscript": (
        "assert f('b a')[0] == 'b'\nassert f('b a')[-1] == 'a'",
        LIST,
        [DEQUE, SEQUENCE],
        [LIES, DEQUE.replace("split()", "split()[::-1]")],
    ),
    "key": (
        "assert f(3)['net'] == 3\nassert 'net' in f(3)\nassert f(3).get('tax') is None",
        "def f(x): return {'net': x}",
        [
            MAPPING + "def f(x): return Table(net=x)",
            "import types\ndef f(x): return types.MappingProxyType({'net': x})",
        ],
        [LIES, MAPPING + "def f(x): return Table(net=4)"],
    ),
    "dict": (
        "assert dict(f(3)) == {'net': 3}",
        "def f(x): return {'net': x}",
        [MAPPING + "def f(x): return Table(net=x)", "def f(x): return iter([('net', x)])"],
        [LIES, "def f(x): return iter([('net', 4)])"],
    ),
    "keys": (
        "assert f('b a') == {'a', 'b'}",
        "def f(x): return set(x.split())",
        [KEYS, "def f(x): return frozenset(x.split())"],
        [LIES, LIST, KEYS.replace("x.", "(x + ' c').")],
    ),
    "items": (
        "assert sorted(f(3)) == [('net', 3)]",
        "def f(x): return [('net', x)]",
        ["def f(x): return {'net': x}.items()"],
        ["def f(x): return {'net': 4}.items()"],
    ),
    "values": (
        "assert list(f(3)) == [3]",
        "def f(x): return [x]",
        ["def f(x): return {'net': x}.values()"],
        ["def f(x): return {'net': 4}.values()"],
    ),
    "no list": (
        "assert f('b a') == ['b', 'a']",
        LIST,
        [],
        [DEQUE, SEQUENCE, KEYS, GENERATES, "def f(x): return tuple(x.split())"],
    ),
    "sequence": (
        "T.assertSequenceEqual(f('b a'), ['b', 'a'])",
        LIST,
        ["def f(x): return tuple(x.split())", DEQUE, SEQUENCE],
        [LIES, GENERATES, "def f(x): return ('a', 'b')", "def f(x): return {'a', 'b'}"],
    ),
    "any order": ("T.assertCountEqual(f('b a'), ['a', 'b'])", LIST, [GENERATES, SEQUENCE, DEQUE, KEYS], [LIES, SHORT]),
    "text": (
        "assert str(f('ab')) == 'ab'",
        "def f(x): return x",
        [TEXT + "def f(x): return Text(x)"],
        [LIES, TEXT + "def f(x): return Text('b')"],
    ),
    "part of a text": (
        "T.assertIn('zq', str(f('azq')))\nassert 'zq' in f\"{f('azq')}\"",
        "def f(x): return x",
        [TEXT + "def f(x): return Text(x)"],
        [LIES, TEXT + "def f(x): return Text('a')"],
    ),
    "text of a subclass": (
        "assert str(f('ab')) == 'Sort.AB'",
        "import enum\nclass Sort(enum.Enum):\n    AB = 'ab'\ndef f(x): return Sort(x)",
        ["import enum\nclass Sort(str, enum.Enum):\n    AB = 'ab'\ndef f(x): return Sort(x)"],
        ["def f(x): return x"],
    ),
    "text of an exception": (
        "with pytest.raises(ValueError) as e:\n    f(2)\nassert str(e.value) == 'bad'",
        "def f(x): raise ValueError('bad')",
        ["class Bad(ValueError):\n    def __str__(self): return 'bad'\ndef f(x): raise Bad"],
        ["class Bad(ValueError):\n    def __str__(self): return 'no'\ndef f(x): raise Bad"],
    ),
    "numbers": (
        "assert int(f(2)) == 12\nassert float(f(2)) == 12.5\nassert abs(f(-2)) == 7",
        "class N(float):\n    def __abs__(self): return 7\ndef f(x): return N(12.5)",
        [NUMBER + "def f(x): return Number()"],
        [LIES, "def f(x): return 12.5"],
    ),
    "equal": (
        "assert f(2) == 12",
        "def f(x): return 12",
        [],
        [LIES, "class L(int):\n    def __eq__(self, other): return True\ndef f(x): return L(3)"],
    ),
    "endless": (
        "assert list(f(2)) == [1, 1]",
        "def f(x): return [1] * x",
        [],
        ["import itertools\ndef f(x): return itertools.repeat(1)"],
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_other_forms_pass_where_the_test_does_not_ask_for_a_type(name):
    body, oracle, right, wrong = CASES[name]
    harness = Harness(body, oracle)
    plan = await make_plan(harness.verifier, harness.trial)
    assert plan is not None and not plan.residual, plan
    sites = {site.number: site for site in plan.sites}
    for product, passes in [*((text, True) for text in (oracle, *right)), *((text, False) for text in wrong)]:
        if passes:
            assert harness.run(harness.source, product)[0] == "", product
        error, hits = harness.run(plan.files["t.py"], product)
        why = error or judge_test(sites, plan.expected["t.py::test_it"], hits)
        assert (why == "") is passes, (why, product, plan.files)


def test_what_a_container_holds_is_compared_between_two_runs():
    def told(items, name="Bag", number=1):
        types = [f"shop.{name}", "builtins.object"]
        value = {"o": {"t": types, "n": number, "b": True}}
        return {7: [([{"w": {"v": value, "a": [["items", {"l": items}], ["len", {"i": "2"}]]}}], None)]}

    one, other = told(["a", "b"]), told(["b", "a"], number=2)
    assert alike(one, other, 7, {})  # the order of a set
    assert not alike(one, told(["a", "c"]), 7, {})
    assert alike(one, told(["a", "c"]), 7, told(["a", "d"]))  # what differs between two copies is not compared
    assert not alike(one, told(["a", "b"], name="Box"), 7, {})
