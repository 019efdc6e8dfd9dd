"""Python and JavaScript: right work whose values are of other types than the oracle's, graded in sandboxes; and liars."""

from __future__ import annotations

import pytest

from sandbox.backends.base import Backend
from sandbox.grading.grader import grade
from sandbox.grading.verdict.outcomes import Cause
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, TaskSpec
from tests.sandbox.grading.verifiers.test_suites_attacked import patched
from tests.sandbox.grading.verifiers.test_toolchains import in_sandbox

PYTHON_TESTS = """import unittest

from words import shown, words


class Words(unittest.TestCase):
    def test_all(self):
        self.assertEqual(list(words("beta alpha gamma")), ["beta", "alpha", "gamma"])
        self.assertEqual(sorted(words("one two three")), ["one", "three", "two"])

    def test_order(self):
        self.assertSequenceEqual(tuple(words("blue green")), ["blue", "green"])

    def test_shown(self):
        self.assertEqual(str(shown("12.5")), "12.50")
        self.assertIn("7.30", f"costs {shown('7.3')}")
"""
AMOUNT = """

class Amount:
    def __init__(self, cents):
        self.cents = cents

    def __str__(self):
        return f"{self.cents // 100}.{self.cents % 100:02}"


def shown(text):
    return Amount(round(float(text) * 100))
"""
SHOWN = '\n\ndef shown(text):\n    return f"{float(text):.2f}"\n'
LIAR = """
class Liar:
    def __eq__(self, other):
        return True

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([Liar(), Liar(), Liar()])

    def __getitem__(self, key):
        return Liar()

    def __lt__(self, other):
        return True

    __contains__ = __ne__ = __eq__
    __hash__ = None


def words(text):
    return Liar()


def shown(text):
    return Liar()
"""
PYTHON = TaskSpec(
    id="forms-python",
    source="mutation",
    instruction="Words and amounts.",
    environment=InlineEnvironment(
        files={"words.py": "def words(text):\n    return []\n\n\ndef shown(text):\n    return ''\n"}
    ),
    verifier=FrameworkVerifier(
        framework="unittest",
        test_files={"test_words.py": PYTHON_TESTS},
        fail_to_pass=tuple(f"test_words.py::Words::test_{name}" for name in ("all", "order", "shown")),
    ),
    gold={"words.py": "def words(text):\n    return text.split()\n" + SHOWN},
)
PYTHON_WORKS = {
    "def words(text):\n    yield from text.split()\n" + AMOUNT: Cause.ALL_PASSED,
    "import collections\n\n\ndef words(text):\n    return collections.deque(text.split())\n" + SHOWN: Cause.ALL_PASSED,
    "def words(text):\n    return dict.fromkeys(text.split()).keys()\n" + SHOWN: Cause.ALL_PASSED,
    "def words(text):\n    yield from text.split()[1:]\n" + AMOUNT: Cause.TESTS_FAILED,
    LIAR: Cause.TAMPERED,
}
JAVASCRIPT_TESTS = """const { test } = require('node:test');
const assert = require('node:assert');
const { point } = require('./point.js');

test('reads', () => {
  assert.equal(point('12,25').x, 12);
  assert.deepEqual(point('7,35'), { x: 7, y: 35 });
});

test('refuses', () => {
  assert.throws(() => point('-1,2'), /RangeError|negative/);
});

test('numbers', () => {
  assert.strictEqual(point('17,31').y, 31);
});
"""
JAVASCRIPT_RIGHT = """exports.point = (text) => {
  const [x, y] = text.split(',').map(Number);
  if (!(x >= 0)) throw new Error('x is negative');
  return { x, y };
};
"""
OTHER_FORMS = """class Point {
  constructor(x, y) { this.x = x; this.y = y; }
}
exports.point = (text) => {
  const [x, y] = text.split(',');
  if (!(Number(x) >= 0)) throw new RangeError('x is out of range');
  return new Point(x + '.0', Number(y));
};
"""
JAVASCRIPT = TaskSpec(
    id="forms-javascript",
    source="mutation",
    instruction="Points.",
    environment=InlineEnvironment(files={"point.js": "exports.point = () => ({});\n"}),
    verifier=FrameworkVerifier(
        framework="node",
        test_files={"point.test.js": JAVASCRIPT_TESTS},
        fail_to_pass=tuple(f"point.test.js::{name}" for name in ("reads", "refuses", "numbers")),
    ),
    gold={"point.js": JAVASCRIPT_RIGHT},
)
JAVASCRIPT_WORKS = {
    OTHER_FORMS: Cause.ALL_PASSED,
    OTHER_FORMS.replace("x + '.0'", "x + '.1'"): Cause.TESTS_FAILED,
    OTHER_FORMS.replace("RangeError", "TypeError"): Cause.TESTS_FAILED,
    OTHER_FORMS.replace("x + '.0'", "{ valueOf: () => Number(x), toString: () => x }"): Cause.TESTS_FAILED,
}


@pytest.mark.integration
@pytest.mark.toolchains
@pytest.mark.parametrize(
    ("task", "works"),
    [pytest.param(PYTHON, PYTHON_WORKS, id="python"), pytest.param(JAVASCRIPT, JAVASCRIPT_WORKS, id="javascript")],
)
async def test_other_forms(backend: Backend, tmp_path, task: TaskSpec, works: dict[str, Cause]):
    if task is JAVASCRIPT and not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    store = EnvironmentStore(tmp_path)
    for work, outcome in works.items():
        report = await grade(backend=backend, environments=store, task=task, patch=patched(task, work))
        assert report.outcome is outcome, (work, report)
