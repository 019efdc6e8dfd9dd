"""Names in delivered Python tests: those that may tell an expectation are gone, and the tests do the same."""

from __future__ import annotations

import ast
import re

import pytest

from sandbox.grading.observations.plan import make_plan
from sandbox.grading.observations.python_tests.naming import neutral_names, neutral_variables, renamed_id
from sandbox.grading.observations.reports.judge import judge_test
from tests.sandbox.grading.observations.test_observations import Harness


@pytest.mark.parametrize(
    "body",
    [
        "half_even = f(1)\nassert half_even == 2",
        "for half_even in range(2):\n    assert f(half_even) == half_even + 1",
        "rows = [half_even for half_even in (1, 2)]\nassert [f(row) for row in rows] == [2, 3]",
        "(half_even, *rest), other = (1, 2), 3\nassert f(half_even) + len(rest) == other",
        "def g(x):\n    return half_even + x\nhalf_even = 1\nassert f(half_even) == g(1)",
        "if (half_even := f(1)):\n    assert half_even == 2",
        "half_even = 0\nhalf_even += f(1)\ndel half_even\nhalf_even = f(2)\nassert half_even == 3",
        "try:\n    half_even = f(None)\nexcept TypeError as error:\n    half_even = str(error)\nassert 'None' in half_even",
    ],
)  # fmt: skip
async def test_variables_have_neutral_names(body):
    harness = Harness(body, "def f(x): return x + 1")
    plan = await make_plan(harness.verifier, harness.trial)
    assert plan is not None
    names = {node.id for node in ast.walk(ast.parse(plan.files["t.py"])) if isinstance(node, ast.Name)}
    assert "half_even" not in names
    sites = {site.number: site for site in plan.sites}
    for product, passes in (("def f(x): return x + 1", True), ("def f(x): return x and x + 5", False)):
        error, hits = harness.run(plan.files["t.py"], product)
        why = error or judge_test(sites, plan.expected["t.py::test_it"], hits)
        assert (why == "") is passes, (why, plan.files)


@pytest.mark.parametrize(
    "body",
    [
        "kept = 1\n    assert locals()['kept'] == 1",
        "kept = 1\n    assert eval('kept') == 1",
        "import kept\n    kept = kept.x",
        "global kept\n    kept = 2",
        "def g(kept):\n        return kept\n    kept = 1\n    assert g(kept=kept) == 1",
        "class A:\n        kept = 1\n    kept = A.kept",
        "kept = 1\n    assert table.query('x == @kept')",
        "try:\n        kept = 1\n    except ValueError as kept:\n        pass",
        "kept = 1\n    assert f'{kept=}' == 'kept=1'",
        "match 1:\n        case kept:\n            kept = 2",
    ],
)
def test_names_that_something_looks_up_stay(body):
    text = f"def test_it():\n    {body}\n"
    assert neutral_variables(text) == text


def test_classes_have_neutral_names():
    source = (
        "import base\n\n\nclass TestHalfEven(base.Case):\n    def test_a(self):\n        super(TestHalfEven, self).go()\n\n\n"
        "class RoundsUp(base.Case):\n    def test_b(self):\n        pass\n\n\n"
        "class TestNamed:\n    def test_c(self):\n        assert 'TestNamed'\n\n\n"
        "class TestShared:\n    def test_d(self):\n        pass\n\n\nclass Helper:\n    pass\n"
    )
    others = ["from t import TestShared\n"]
    for classes_only in (False, True):
        made, renamed = neutral_names({"t.py": source}, others, classes_only=classes_only)
        assert renamed == {"t.py": {"TestHalfEven": "TestGroup1", "RoundsUp": "Group1"}}
        assert made["t.py"] == source.replace("TestHalfEven", "TestGroup1").replace("RoundsUp", "Group1")
    assert (
        renamed_id("t.py::TestHalfEven::test_a[TestHalfEven-x]", renamed) == "t.py::TestGroup1::test_a[TestHalfEven-x]"
    )
    assert renamed_id("u.py::TestHalfEven::test_a", renamed) == "u.py::TestHalfEven::test_a"


OWN = {
    "a constant": "HALF_EVEN = 3\n\n\ndef test_it():\n    assert f(1) < HALF_EVEN\n",
    "a helper": "def half_even(x):\n    return f(x)\n\n\ndef test_it():\n    assert half_even(1) == 2\n",
    "a parameter of a helper": "def g(x, half_even=1):\n    return f(x) + half_even\n\n\n"
    "def test_it():\n    assert g(1, half_even=2) == 4\n",
    "a fixture": "import pytest\n\n\n@pytest.fixture\ndef half_even():\n    return 1\n\n\n"
    "def test_it(half_even):\n    assert f(half_even) == 2\n",
    "a fixture that is used by name": "import pytest\n\n\n@pytest.fixture\ndef half_even():\n    return 1\n\n\n"
    "@pytest.mark.usefixtures('half_even')\ndef test_it(request):\n    assert f(request.getfixturevalue('half_even')) == 2\n",
    "a column": "import pytest\n\n\n@pytest.mark.parametrize('half_even, other', [(1, [2]), (2, [3])])\n"
    "def test_it(half_even, other):\n    assert [f(half_even)] == other\n",
    "columns of a list": "import pytest\n\n\n@pytest.mark.parametrize(['half_even'], [([1],), ([2],)])\n"
    "def test_it(half_even):\n    assert f(half_even[0]) == half_even[0] + 1\n",
    "an attribute of a class of tests": "class TestIt:\n    half_even = 1\n\n    def test_it(self):\n"
    "        assert f(self.half_even) == 2\n",
    "a method of a class of tests": "import unittest\n\n\nclass TestIt(unittest.TestCase):\n"
    "    def half_even(self, x):\n        return f(x)\n\n    def test_it(self):\n"
    "        self.assertEqual(self.half_even(1), 2)\n",
    "what a docstring names": "def half_even():\n    'half_even'\n    return f(1)\n\n\ndef test_it():\n    'half_even'\n"
    "    assert half_even() == 2\n",
}


@pytest.mark.parametrize("what", OWN)
def test_names_of_a_module_are_neutral(what):
    source = "from product import f\n" + OWN[what]
    made, renamed = neutral_names({"t.py": source}, [])
    assert "half_even" not in ast.unparse(ast.parse(made["t.py"]))
    back = {new: old for old, new in renamed["t.py"].items()}
    assert "".join(back.get(word, word) for word in re.split(r"(\W+)", made["t.py"])) == source
    assert neutral_names({"t.py": source}, ["import t\nt.half_even"])[0]["t.py"].count("half_even") == source.count(
        "half_even"
    )
    assert neutral_names({"t.py": source}, [], classes_only=True)[0]["t.py"].count("half_even") == source.count(
        "half_even"
    )


@pytest.mark.parametrize(
    "source",
    [
        "def test_it(kept):\n    assert f(kept)\n",
        "import kept\n\n\ndef test_it():\n    assert f(kept.x)\n",
        "from product import kept\n\n\ndef test_it():\n    assert kept(1)\n",
        "kept = 1\n\n\ndef test_it():\n    assert f(kept).kept\n",
        "kept = 1\n\n\ndef test_it():\n    assert f(kept=kept)\n",
        "kept = 1\n\n\ndef test_it():\n    assert globals()['ke' + 'pt']\n",
        "kept = 1\n\n\ndef test_it():\n    assert 'kept' in f(1)\n",
        "@f.command()\ndef kept(x):\n    return x\n\n\ndef test_it():\n    assert f.run()\n",
        "@f.command()\ndef g(kept):\n    return kept\n\n\ndef test_it():\n    assert f.run()\n",
        "def kept_word(x):\n    return x\n\n\ndef test_it():\n    assert f(kept_word) == 'kept-word'\n",
        "def g(kept):\n    return kept\n\n\ndef test_it():\n    assert f(g)\n",
        "def test_it():\n    assert f(lambda kept: 1)\n",
        "class kept:\n    pass\n\n\ndef test_it():\n    assert f(kept)\n",
        "class G:\n    kept: int = 3\n\n\ndef test_it():\n    assert f(G())\n",
        "class G:\n    def kept(self):\n        return 3\n\n\ndef test_it():\n    assert f(G())\n",
        "class G:\n    def g(self, kept):\n        return kept\n\n\ndef test_it():\n    assert f(G())\n",
        "import base\n\n\nclass TestIt(base.Case):\n    kept = 3\n\n    def test_it(self):\n        assert f(self.kept)\n",
        "import unittest\n\n\nclass TestIt(unittest.TestCase):\n    maxDiff = 3\n\n    def test_it(self):\n"
        "        self.maxDiff = None\n",
        "def pytest_kept(config):\n    pass\n\n\ndef setup_module(module):\n    pass\n",
    ],
)  # fmt: skip
def test_names_that_others_look_up_stay(source):
    made, renamed = neutral_names({"t.py": source}, [])
    left = {name for name in renamed["t.py"] if name not in ("x", "g", "TestIt", "G")}
    assert not left, made


def test_rows_of_renamed_parameters_have_other_ids():
    renamed = {"t.py": {"rows": "name1", "half_even": "name2"}}
    assert renamed_id("t.py::test_a[rows0-half_even12-rows-5]", renamed) == "t.py::test_a[name10-name212-rows-5]"
    assert renamed_id("t.py::test_a[my_rows0]", renamed) == "t.py::test_a[my_rows0]"
