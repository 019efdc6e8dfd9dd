"""Names in delivered Python tests: those that may tell an expectation are gone, and the tests do the same."""

from __future__ import annotations

import ast

import pytest

from sandbox.grading.observations.plan import make_plan
from sandbox.grading.observations.python_tests.naming import neutral_classes, neutral_variables, renamed_id
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
    made, renamed = neutral_classes({"t.py": source}, others)
    assert renamed == {"t.py": {"TestHalfEven": "TestGroup1", "RoundsUp": "Group1"}}
    assert made["t.py"] == source.replace("TestHalfEven", "TestGroup1").replace("RoundsUp", "Group1")
    assert (
        renamed_id("t.py::TestHalfEven::test_a[TestHalfEven-x]", renamed) == "t.py::TestGroup1::test_a[TestHalfEven-x]"
    )
    assert renamed_id("u.py::TestHalfEven::test_a", renamed) == "u.py::TestHalfEven::test_a"
