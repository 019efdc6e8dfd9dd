"""What the host makes of JavaScript's reports beside what Node itself says of the same values."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess

import pytest

from sandbox.grading.observations.brace_tests.javascript import SUPPORT
from sandbox.grading.observations.reports.judge import holds
from sandbox.grading.observations.reports.values import Value

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
PRIMITIVES = (
    "0", "-0", "1", "12", "1.5", "-1.5", "1e21", "0.1", "NaN", "Infinity", "-Infinity", "255", "true", "false", "null",
    "undefined", "''", "' '", "'0'", "'-0'", "'1'", "'12'", "'12.0'", "'1.50'", "'\\n 12\\t'", "'1e21'", "'.1'", "'1.'",
    "'0xff'", "'0b1'", "'-0x1'", "'1_2'", "'12n'", "'NaN'", "'Infinity'", "'true'", "'null'", "'é'", "'a\"b'", "'12,'",
    "12n", "0n", "9007199254740993n", "9007199254740992", "'9007199254740992'", "'0.1000000000000000055'", "'1,2'",
)  # fmt: skip
OBJECTS = (
    "{ x: 12 }", "{ x: '12' }", "{ x: '12.0' }", "{ x: '13' }", "{ y: 12 }", "{ x: 12, y: null }", "{ y: undefined, x: '12' }",
    "[12, 1]", "['12', true]", "['12', '1']", "[12]", "[12, [1, 'a']]", "['12', ['1', 'a']]", "[12, ['1', 'b']]", "[]", "{}",
    "Object.assign(Object.create(null), { x: 12 })", "new (class Point { x = 12 })()", "[null]", "[undefined]", "[NaN]", "[0]",
    "[false]", "[-0]", "{ '1': 2 }", "{ '01': 2 }",
)  # fmt: skip
THROWN = (
    "new Error('bad thing')", "new RangeError('12 is too much')", "new (class Odd extends Error { name = 'Odd' })('bad')",
    "'a text'", "12", "null", "new (class Own extends Error { toString() { return 'told by itself' } })('bad')",
    "Object.assign(new Error('bad'), { name: 'Named' })", "new Error('')",
)  # fmt: skip
PATTERNS = (
    "bad", "^bad", "^Error: bad thing$", "RangeError", "too much$", "^Odd", "text", "^12$", "null", "by itself", "Named: bad",
    "^$", "^Error$",
)  # fmt: skip


def said_by_node(lines: list[str]) -> tuple[list[bool], list[dict]]:
    """What each line, an assertion of Node and a report, decides and reports."""
    script = "const assert = require('node:assert'); let at = 0;\n"
    script += "const passes = (run) => { try { run(); return true; } catch { return false; } };\n" + "\n".join(lines)
    ran = subprocess.run(
        ["node", "-"],
        input=f"{SUPPORT}\n{script}",
        capture_output=True,
        text=True,
        timeout=60,
        env={"OBSERVED_TO": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    decided = [line == "true" for line in ran.stdout.split("\n") if line in ("true", "false")]
    return decided, [json.loads(line[1:]) for line in ran.stdout.split("\n") if line.startswith("\x02")]


@pytest.mark.parametrize(
    ("method", "mode", "values"), [("equal", "s", PRIMITIVES), ("deepEqual", "e", OBJECTS + PRIMITIVES[:20])]
)
def test_loose_equality(method, mode, values):
    pairs = list(itertools.product(values, repeat=2))
    decided, reports = said_by_node(
        [
            f"require('fs').writeSync(1, passes(() => assert.{method}({a}, {b})) + '\\n'); $observe(0, '{mode}', {a}, {b});"
            for a, b in pairs
        ]
    )
    judged = [
        holds("loosely(v0, v1)", dict(zip(("v0", "v1"), map(Value, one["values"]), strict=True))) for one in reports
    ]
    differ = [(pair, node) for pair, node, ours in zip(pairs, decided, judged, strict=True) if node != ours]
    assert sum(decided) > len(values), "some that are not the same are equal"
    undefined = [pair for pair, _ in differ if method == "deepEqual" and "undefined" in "".join(pair)]
    assert [pair for pair, _ in differ if pair not in undefined] == [], "a property that is undefined is told as none"


def test_what_a_thrown_value_is_searched_for():
    pairs = list(itertools.product(THROWN, PATTERNS))
    decided, reports = said_by_node(
        [
            f"require('fs').writeSync(1, passes(() => assert.throws(() => {{ throw {thrown}; }}, /{pattern}/)) + '\\n'); "
            f"$raises(0, 's', () => {{ throw {thrown}; }});"
            for thrown, pattern in pairs
        ]
    )
    ours = [
        re.search(pattern, report["raised"]["e"]["m"]) is not None
        for (_, pattern), report in zip(pairs, reports, strict=True)
    ]
    assert [pair for pair, node, own in zip(pairs, decided, ours, strict=True) if node != own] == []
    assert any(decided)


def test_other_libraries_search_the_message_alone():
    _, (report,) = said_by_node(["$raises(0, 'm', () => { throw new RangeError('12 is too much'); });"])
    assert report["raised"]["e"]["m"] == "12 is too much"
