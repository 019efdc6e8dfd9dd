"""A suite in Python that tells what it expects in a form which no list of forms has: in the pattern of a helper."""

from __future__ import annotations

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
