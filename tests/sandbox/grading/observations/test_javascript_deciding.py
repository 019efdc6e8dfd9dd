"""What in JavaScript tests shows an expectation, and what is left of a file without it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.grading.canaries.insertion import MAX_SOURCE_BYTES
from sandbox.grading.observations.brace_tests.deciding import TestFile
from sandbox.grading.observations.brace_tests.helper_files import pruned
from sandbox.grading.observations.brace_tests.statements import statements
from sandbox.grading.observations.js_first_run import is_alone, without_comments

HELPERS = {
    "checks.js": "const assert = require('assert');\nconst polite = (t) => assert.ok(t);\nconst named = () => 'bob';\n"
    "module.exports = { polite, named };\n",
    "aliased.js": "const polite = (t) => { throw t; };\nmodule.exports = { named: polite };\n",
    "chained.js": "export * from './checks.js';\n",
    "everywhere.js": "global.polite = (t) => { if (t !== 'x') throw t; };\n",
    "golden.json": "{}",
}


LOADED = "import { f, g, h, Money, more, wanted } from './f.js';\nimport { readFileSync } from 'node:fs';\n"


def suite(body: str, top: str = "") -> str:
    return f"{LOADED}{top}\ntest('it', (t) => {{\n  {body}\n}});\n\ntest('other', () => {{\n  $observe(9, 's', (f(0)));\n}});\n"


def file(text: str) -> TestFile:
    return TestFile("a.test.js", text.encode(), {**HELPERS, "a.test.js": text})


@pytest.mark.parametrize(
    ("body", "top", "decides"),
    [
        ("$observe(0, 's', (f(1)));", "", False),
        ("$observe(0, 's', (f(1).trim()));", "", False),
        ("$raises(0, (() => f(1)));", "", False),
        ("for (let i = 0; i < 3; i++) $observe(0, 's', (f(i)));", "", False),
        ("if (process.platform === 'win32' || typeof f === 'x' || f == null) return;", "", False),
        ("await t.test('part', () => { $observe(0, 's', (f(1))); });", "", False),
        ("$observe(0, 's', (f(1).split('\\n')));", "", False),
        ("$observe(0, 's', (lower(f(1))));", "const lower = (s) => s.toLowerCase();", False),
        ("$observe(0, 's', (f(named())));", "const { named } = require('./checks.js');", False),
        ("for (const key in f(1)) $observe(0, 's', (key));", "", False),
        ("$observe(0, 's', (g(1)));", "var a = require('assert'), { g } = require('./g.js');", False),
        ("$observe(0, 's', (golden.x));", "import golden from './golden.json' with { type: 'json' };", False),
        # What is asked for shows in the report.
        ("$observe(0, 's', (f(1).startsWith('Good')));", "", True),
        ("$observe(0, 's', (f(1) === 'Good'));", "", True),
        ("$observe(0, 's', (f(1).replace('Good day', '')));", "", True),
        ("$observe(0, 's', (f(1).slice('Good day, '.length)));", "", True),
        ("$observe(0, 's', (/Good/.test(f(1))));", "", True),
        ("if (f(1) !== 'Good') process.exit(1);", "", True),
        ("switch (f(1)) { case 'Good': break; default: g(); }", "", True),
        ("$observe(0, 's', ('Good' in f(1)));", "", True),
        ("$observe(0, 's', (f(1).has('Good')));", "", True),
        ("$observe(0, 's', (isDeepStrictEqual(f(1), [7])));", "", True),
        # Helpers, however they are reached.
        ("polite(f(1));", "const polite = (x) => assert.ok(x);", True),
        ("polite(f(1));", "function polite(x) {\n  very(x);\n}\nfunction very(x) { if (x != 'Good') throw x; }", True),
        ("polite(f(1));", "let polite;\nbeforeEach(() => {\n  polite = (x) => assert.ok(x);\n});", True),
        ("check.polite(f(1));", "const check = {};\ncheck.polite = (x) => { throw x; };", True),
        ("f(1).polite();", "String.prototype.polite = function () { assert.ok(this); };", True),
        ("sure(f(1));", "const { ok: sure } = require('node:assert');", True),
        ("e(f(1)).x();", "import { expect as e } from 'vitest';", True),
        ("polite(f(1));", "const { polite } = require('./checks.js');", True),
        ("a(f(1));", "var { g } = require('./g.js'), a = require('assert');", True),
        ("checks.polite(f(1));", "import * as checks from './checks.js';", True),
        ("named(f(1));", "const { named } = require('./aliased.js');", True),
        ("polite(f(1));", "import { polite } from './chained.js';", True),
        ("polite(f(1));", "import './everywhere.js';", True),
        ("(await import('./checks.js')).polite(f(1));", "", True),
        ("const a = require('assert'); a(f(1));", "", True),
        ("$observe(0, 's', (f(1))); say(`${polite(f(1))}`);", "const polite = (x) => assert.ok(x);", True),
    ],
)  # fmt: skip
def test_what_a_test_decides_by_is_found(body, top, decides):
    assert file(suite(body, top)).deciding_tests() == ({("it",)} if decides else set())


@pytest.mark.parametrize(
    ("top", "count"),
    [
        ("beforeEach(() => {\n  assert.ok(f(1));\n});", 1),
        ("t.after(() => check(f(1)));\nconst check = (x) => expect(x).toBe(1);", 1),
        ("for (const [a, want] of [[1, 2]])\n  test(`of ${a}`, () => assert.equal(f(a), want));", 1),
        ("it.each([[1, 2]])('of %i', (a, want) => {\n  expect(f(a)).toBe(want);\n});", 1),
        ("const first = assert.ok(f(1));", 1),
        ("let store;\nbeforeEach(async () => {\n  store = await open();\n});\nafterEach(() => store.close());", 0),
        ("const assert = chai.assert;\nconst polite = (x) => assert.ok(x);", 0),
    ],
)
def test_what_is_decided_outside_tests_is_counted(top, count):
    assert file(suite("$observe(0, 's', (f(1)));", top)).deciding_elsewhere() == count


SECRET = "7351"
HEAD = "import { test, beforeEach } from 'node:test';\nimport assert from 'node:assert';\nimport { f } from './f.js';\n"


@pytest.mark.parametrize(
    ("top", "body", "hooks"),
    [
        ("const WANT = 7351;", "assert.equal(g(f(1)), WANT);", False),
        ("const NET = 100, WANT = new Money(7351);", "assert.equal(g(NET), WANT);", False),
        ("var g = require('./g.js'), WANT = 7351, h = 3", "assert.equal(g(1), WANT);", True),
        ("const rows = [[new Money(1), new Money(7351)]];", "for (const [a, b] of rows) assert.equal(f(a), b);", False),
        ("const polite = (x) => assert.ok(x > 7351);", "polite(f(1));", False),
        ("const one = 7351;\nconst two = () => one + 1;\nfunction three(x) {\n  assert.ok(x > two());\n}", "three(f(1));", False),
        ("beforeEach(() => {\n  assert.ok(f(7351));\n});", "assert.ok(f(2));", False),
        ("beforeEach(() => {\n  assert.ok(f(7351));\n});", "assert.ok(f(2));", True),
        ("let net, want;\nbeforeEach(() => {\n  net = g(1);\n  want = new Money(7351);\n});", "assert.equal(f(2), want);", True),
        ("beforeEach(function () {\n  this.want = 7351;\n});", "assert.equal(f(2), this.want);", True),
        ("test.each([[1, 7351]])('of %i', (a, b) => assert.equal(f(a), b));", "assert.ok(f(2));", True),
        ("import golden from './g7351.json';", "assert.deepEqual(f(1), golden);", True),
        ("if (f(1) !== 7351) {\n  throw 1;\n}\nelse {\n  g();\n}", "assert.ok(f(2));", True),
    ],
)  # fmt: skip
def test_what_compared_tests_do_not_need_leaves_the_file(top, body, hooks):
    text = (
        HEAD
        + suite(body, top)
        + "describe('group', () => {\n  const deep = 7351;\n  it('in it', () => {\n    assert.ok(deep);\n  });\n});\n"
    )
    read = file(text)
    assert ("other",) in read.comparable() and ("it",) not in read.comparable()
    left = read.without({("other",)}, {("other",)}, hooks=hooks).decode()
    assert SECRET not in left and "test('other'" in left and "import { f }" in left
    assert "from 'node:test'" in left


def test_of_several_names_those_that_are_needed_stay():
    top = "var g = require('./g.js'), { h } = more(1, 2), base = [3,\n  4], WANT = wanted(7351), last;"
    text = suite("assert.ok(f(1) === WANT)", top).replace("f(0)", "f(g(base))")
    left = file(text).without({("other",)}, {("other",)}, hooks=False).decode()
    assert "g = require('./g.js'), { h } = more(1, 2), base = [3,\n  4], WANT = undefined, last;" in left


def test_what_compared_tests_need_stays():
    top = (
        "'use strict';\nlet net;\nconst base = 100\n"
        "const money = (x) => make(x)\nconst make = (x) => [x, base]\nbeforeEach(() => {\n  net = money(1)\n})"
    )
    text = suite("assert.ok(f(1))", top).replace("f(0)", "f(net)")
    left = file(text).without({("other",)}, {("other",)}, hooks=True).decode()
    assert all(line in left for line in top.split("\n"))
    assert "assert" not in left


@pytest.mark.parametrize(
    ("top", "use"),
    [
        ("const rows = [[new Money(2)]];", "rows[0][0]"),
        ("const golden = JSON.parse(readFileSync('golden.json'));", "golden.name"),
        ("import golden from './golden.json';", "golden.name"),
    ],
)
def test_a_test_that_needs_a_table_of_expectations_is_not_compared(top, use):
    body = f"assert.deepEqual(f(1), {use.partition('.')[0].partition('[')[0]})"
    shared = file(suite(body, top).replace("f(0)", f"f({use})"))
    assert shared.comparable() == set()
    assert file(suite("assert.ok(f(1))", top).replace("f(0)", f"f({use})")).comparable() == {("other",)}


def test_helper_files_are_left_with_what_is_used():
    helper = (
        "const assert = require('assert');\nconst POLITE = '7351';\nfunction polite(t) {\n  assert.ok(t.startsWith(POLITE));\n}\n"
        "const make = () => base;\nconst base = 3;\nexports.word = '7351';\n"
        "module.exports = { make, polite, POLITE, other: 7351 };\n"
    )
    left = pruned({"h.js": helper}, ["const { make, polite } = require('./h.js');\nmake();\n"])["h.js"]
    assert "7351" not in left and "const make = () => base;\nconst base = 3;" in left
    used = pruned({"h.js": helper}, ["const h = require('./h.js');\nh.polite(h.word, h.other);\n"])["h.js"]
    assert used.count("7351") == 3


def test_remarks_leave_wherever_they_stand():
    text = "/** @jest-environment jsdom */\n// 7351\nconst a = '// no remark'; /* 7351\n*/\nf(/[/*]/);\n"
    left = without_comments(text)
    assert SECRET not in left and "@jest-environment" in left and "'// no remark'" in left and "f(/[/*]/)" in left
    assert left.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("body", "alone"),
    [
        ("expect(f(1)).resolves.toBe(3);", True),
        ("const got = f(1);\n  assert.equal(got, 'x');", True),
        ("assert.equal(f(1), 3);\n  assert.ok(f(2).startsWith('Good'));", False),
        ("assert.deepEqual(f(1), { a: 1, b: 2 });", False),
        ("f(1);", False),
    ],
)
def test_canaries_of_a_first_run_show_nothing_that_is_right(body, alone):
    assert is_alone(f"test('it', () => {{\n  {body}\n}});\n".encode()) is alone


def test_statements_without_semicolons():
    text = (
        "const a = 1,\n  b = f(\n    2)\nlet c\nc = a\n  + b\n"
        "if (a)\n  g()\nelse {\n  h()\n}\nfunction k() {\n}\n(1, k)()\n`x`.trim()\n"
    )
    assert [one.source.split(b"\n")[0] for one in statements(text.encode())] == [
        b"const a = 1,", b"let c", b"c = a", b"if (a)", b"function k() {", b"(1, k)()",
    ]  # fmt: skip
    first, *_ = statements(text.encode())
    assert first.declares == {b"a", b"b"}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 30), st.text(max_size=6)), max_size=4))
def test_no_source_is_too_strange(damage):
    text = HEAD + suite(
        "assert.ok(f(`}${1}`))", "const a = [1]\nbeforeEach(() => {\n  b = a\n})\ndescribe('x', () => {})"
    )
    for at, length, new in damage:
        text = text[:at] + new + text[at + length :]
    text = text.encode("utf-8", "replace").decode()
    read = file(text)
    read.deciding_elsewhere()
    read.without(read.comparable(), read.comparable(), hooks=True)
    pruned({"h.js": text}, [text])
    without_comments(text)


@pytest.mark.parametrize(
    "piece",
    ["const a", "a = b\n", "describe('x', () => {", "test('a', () => {\n});\n", "if (a)\n", "a.b = c;", "`${", "for (",
     "= [[", "x = {"],
)  # fmt: skip
def test_hostile_sources_take_no_time(piece):
    source = (piece * (MAX_SOURCE_BYTES // len(piece)))[:MAX_SOURCE_BYTES]
    began = time.process_time()
    read = file(source)
    read.without(read.comparable(), (), hooks=True)
    assert time.process_time() - began < 20.0
