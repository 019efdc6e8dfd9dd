"""Copies of test files in which one assertion says the contrary."""

from __future__ import annotations

import ast

from sandbox.grading.dynamic_analysis.turning import turned, vacuous

PYTHON = """import pytest


def test_sums(shop):
    assert shop.total([1]) == 1
    with shop.open():
        assert shop.is_open
    with pytest.raises(ValueError):
        assert shop.total("x")
    if shop.big:
        assert shop.rooms > 3
    for room in shop:
        assert room.door, "no door"


class TestMore:
    def test_more(self):
        self.assertEqual(1, 1)
"""
NODE = """const test = require('node:test');
const assert = require('node:assert');
test('adds', () => {
  assert.equal(add(1, 2), 3);
  if (odd) assert.ok(odd(1));
  assert(add(1, 1) > 1, 'grows');
  // assert.ok(false)
  assert.throws(() => add());
});
"""


def test_python_assertions_that_are_always_reached_are_turned():
    copies = turned({"tests/test_shop.py": PYTHON})
    assert [(item.name, item.line) for item in copies] == [
        ("test_sums", 5), ("test_sums", 7), ("test_sums", 13), ("test_more", 18),
    ]  # fmt: skip
    assert [item.path for item in copies][:2] == ["tests/test_shop_turned_0.py", "tests/test_shop_turned_1.py"]
    assert "assert not shop.total([1]) == 1" in copies[0].text and "assert shop.is_open" in copies[0].text
    assert "raise AssertionError('turned')" in copies[3].text
    for item in copies:
        ast.parse(item.text)


def test_node_assertions_that_are_always_reached_are_turned():
    copies = turned({"test/add.test.js": NODE})
    assert [(item.name, item.line) for item in copies] == [("adds", 4), ("adds", 6)]
    assert "assert.notEqual(add(1, 2), 3)" in copies[0].text
    assert "assert.equal(Boolean(value), false))(add(1, 1) > 1, 'grows')" in copies[1].text
    assert copies[0].path == "test/add_turned_0.test.js"


def test_only_what_passes_both_ways_is_vacuous():
    copies = turned({"tests/test_shop.py": PYTHON})
    straight = {"tests/test_shop.py::test_sums[1]": "passed", "tests/test_shop.py::test_sums[2]": "passed"}
    both = {f"{copies[0].path}::test_sums[{n}]": "passed" for n in (1, 2)}
    one = {f"{copies[1].path}::test_sums[{n}]": status for n, status in ((1, "passed"), (2, "failed"))}
    assert vacuous(copies, straight, both | one) == [copies[0]]
    assert vacuous(copies, {}, both) == []


def test_a_file_that_does_not_parse_is_left_out():
    assert turned({"tests/test_bad.py": "def test_x(:\n"}) == []
