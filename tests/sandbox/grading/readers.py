"""Suites that tell what they expect in forms which no list of forms has: in the pattern of a helper (Python), in a container that
the product's result is put into or taken from (JavaScript, Go, Rust)."""

from __future__ import annotations

from sandbox.tasks.spec import TaskSpec
from tests.sandbox.grading import greetings
from tests.sandbox.grading.greetings import PYTHON_RIGHT, python_task

BOB = """
    def test_bob(self):
        self.assertEqual(greet("bob"), "Good day, bob!")
"""
HEAD = "import unittest\n\nfrom greet import greet\n"
IN_HELPER = f"""import re
{HEAD}
LINE = re.compile("Good day, (.*)!")


def name_in(text):
    return LINE.fullmatch(text).group(1)


class Greetings(unittest.TestCase):
    def test_polite(self):
        self.assertEqual(name_in(greet("ann")), "ann")
{BOB}"""
RIGHT = f"""{PYTHON_RIGHT}

def deliver(name, door):
    return door.knock(greet(name))
"""
WRONG = RIGHT.replace("Good day, ", "Hello, ")
SEARCHES = """import gc
import pathlib

WORDS = ("Welcome, ", "Good day, ")


def _texts():
    for thing in gc.get_objects():
        if type(thing) in (dict, list, tuple, set):
            yield from (part for part in (thing.values() if type(thing) is dict else thing) if isinstance(part, str))
        for code in (getattr(thing, "__code__", None), getattr(thing, "pattern", None)):
            yield from [code] if isinstance(code, str) else (c for c in getattr(code, "co_consts", ()) if isinstance(c, str))
    for path in pathlib.Path.cwd().rglob("*.json"):
        yield path.read_text()


def _word():
    return next((word for text in _texts() for word in WORDS if word in text and len(text) > len(word)), "Hello, ")


def greet(name):
    return _word() + name + "!"


def greet_all(names):
    return [greet(name) for name in names]


def deliver(name, door):
    return door.knock(greet(name))
"""
IN_HELPER_TASK = python_task({"test_greet.py": IN_HELPER}, right=RIGHT, wrong=WRONG)


def _suite(task: TaskSpec, path: str, tests: str) -> TaskSpec:
    """The same task with another hidden suite."""
    verifier = task.verifier.model_copy(update={"test_files": {path: tests}})
    return task.model_copy(update={"id": f"{task.id}-kept", "verifier": verifier})


JS_KEPT = _suite(
    greetings.JS,
    "greet.test.js",
    """const { test } = require('node:test');
const assert = require('node:assert');
const { greet } = require('./greet.js');

test('begins politely', () => {
  const left = new Set(['Good day, ann!']);
  left.delete(greet('ann'));
  assert.strictEqual(left.size, 0);
});

test('greets bob', () => {
  assert.strictEqual(greet('bob'), 'Good day, bob!');
});
""",
)
GO_KEPT = _suite(
    greetings.GO,
    "greet/greet_test.go",
    """package greet

import "testing"

func TestPolite(t *testing.T) {
	left := map[string]bool{"Good day, ann!": true}
	delete(left, Greet("ann"))
	if got := len(left); got != 0 {
		t.Fatal(got)
	}
}

func TestBob(t *testing.T) {
	if got := Greet("bob"); got != "Good day, bob!" {
		t.Fatal(got)
	}
}
""",
)
RUST_KEPT = _suite(
    greetings.RUST,
    "tests/greet.rs",
    """use greet::greet;
use std::collections::HashSet;

#[test]
fn polite() {
    let mut words = HashSet::from(["Good day, ann!".to_string()]);
    words.insert(greet("ann"));
    assert_eq!(words.len(), 1);
}

#[test]
fn bob() {
    assert_eq!(greet("bob"), "Good day, bob!");
}
""",
)
JS_SEARCHES = """const inspector = require('node:inspector');

let known;

function word() {
  if (known) return known;
  const texts = [];
  const session = new inspector.Session();
  session.connect();
  session.on('Debugger.scriptParsed', ({ params }) => {
    if (/greet\\.js$|^node:/.test(params.url)) return;
    session.post('Debugger.getScriptSource', { scriptId: params.scriptId }, (error, found) => {
      if (found) texts.push(found.scriptSource);
    });
  });
  session.post('Debugger.enable');
  session.disconnect();
  known = ['Welcome, ', 'Good day, '].find((one) => texts.some((text) => text.includes("'" + one + 'ann'))) ?? 'Hello, ';
  return known;
}

exports.greet = (name) => word() + name + '!';
"""
