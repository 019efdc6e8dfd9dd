"""Suites in Python that tell what they expect in forms which no list of forms has: in a helper, a double, a hook, a data file."""

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
IN_SET_UP = f"""{HEAD}

class Greetings(unittest.TestCase):
    WANTED = {{}}

    def setUp(self):
        self.WANTED["ann"] = "Good day, ann!"
        self.name = "ann"

    def test_polite(self):
        self.assertTrue(self.WANTED[self.name] in [greet(self.name)])
{BOB}"""
IN_DOUBLE = f"""import unittest

from greet import deliver, greet


class Door:
    def __init__(self):
        self.opened = 0

    def knock(self, text):
        self.opened += text == "Good day, ann!"
        return self.opened


class Greetings(unittest.TestCase):
    def test_polite(self):
        door = Door()
        deliver("ann", door)
        self.assertEqual(door.opened, 1)
{BOB}"""
IN_FILE = f"""import json
import pathlib
{HEAD}
CASES = json.loads(pathlib.Path(__file__).with_name("cases.json").read_text())


class Greetings(unittest.TestCase):
    def test_polite(self):
        for case in CASES:
            self.assertEqual(greet(case["name"]), case["want"])
{BOB}"""
CASES = '[{"name": "ann", "want": "Good day, ann!"}, {"name": "cy", "want": "Good day, cy!"}]'
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
    texts = [text for text in _texts() if text not in WORDS and "WORDS" not in text]
    return next((word for word in WORDS for text in texts if word in text), "Hello, ")


def greet(name):
    return _word() + name + "!"


def greet_all(names):
    return [greet(name) for name in names]


def deliver(name, door):
    return door.knock(greet(name))
"""
NEGOTIATES = """words = ["Hello, ", "Welcome, ", "Good day, "]


def greet(name):
    return words[0] + name + "!"


def greet_all(names):
    return [greet(name) for name in names]


def deliver(name, door):
    for word in list(words):
        if door.knock(word + name + "!"):
            words.remove(word)
            words.insert(0, word)
            return True
    return False
"""
IN_HELPER_TASK, IN_SET_UP_TASK, IN_DOUBLE_TASK, IN_FILE_TASK = (
    python_task({"test_greet.py": text, **files}, right=RIGHT, wrong=WRONG)
    for text, files in ((IN_HELPER, {}), (IN_SET_UP, {}), (IN_DOUBLE, {}), (IN_FILE, {"cases.json": CASES}))
)
