"""Which literals of Python tests go into a call of the product, and what is left where the others are taken out."""

from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.observations.python_tests.literals import PUBLIC, purge, shows_public_alone, unexplained

HEAD = "import json, os, re, sys\nimport pytest\nfrom shop import Basket, greet, deliver\nimport shop\n"


def left(body: str, **others: str) -> str:
    """The file after the purge."""
    files = {"test_it.py": HEAD + textwrap.dedent(body), **{f"{name}.py": text for name, text in others.items()}}
    return purge(files)["test_it.py"]


INPUTS = {
    "an argument": "def test_it():\n    _oc_see(0, lambda: greet('apple'))",
    "a keyword": "def test_it():\n    _oc_see(0, lambda: greet(name='apple'))",
    "a name": "def test_it():\n    name = 'apple'\n    _oc_see(0, lambda: greet(name))",
    "a loop": "def test_it():\n    for name in ['apple', 'pear']:\n        _oc_see(0, lambda: greet(name))",
    "a table": "@pytest.mark.parametrize('name', ['apple', 'pear'])\ndef test_it(name):\n    _oc_see(0, lambda: greet(name))",
    "a column": (
        "@pytest.mark.parametrize('name, want', [('apple', None), ('pear', None)])\n"
        "def test_it(name, want):\n    _oc_see(0, lambda: greet(name))"
    ),
    "a constant": "NAMES = ('apple', 'pear')\ndef test_it():\n    _oc_see(0, lambda: [greet(name) for name in NAMES])",
    "a helper": "def make(name):\n    return Basket(name)\ndef test_it():\n    _oc_see(0, lambda: make('apple').total)",
    "a helper's result": "def name():\n    return 'apple'\ndef test_it():\n    _oc_see(0, lambda: greet(name()))",
    "a fixture": "@pytest.fixture\ndef name():\n    return 'apple'\ndef test_it(name):\n    _oc_see(0, lambda: greet(name))",
    "an object": (
        "def test_it():\n    basket = Basket()\n    basket.add('apple')\n    basket['pear'] = 12\n"
        "    _oc_see(0, lambda: basket.total)"
    ),
    "a method that a text has": "def test_it():\n    basket = Basket('apple')\n    _oc_see(0, lambda: basket.count('pear'))",
    "a file": (
        "def test_it(tmp_path):\n    path = tmp_path / 'names.txt'\n    path.write_text('apple')\n"
        "    _oc_see(0, lambda: greet(path))"
    ),
    "an open file": (
        "def test_it(tmp_path):\n    path = tmp_path / 'names.txt'\n    with open(path, 'w', encoding='utf-8') as file:\n"
        "        file.write('apple')\n    _oc_see(0, lambda: greet(path))"
    ),
    "what is converted": "def test_it():\n    _oc_see(0, lambda: greet(json.dumps({'apple': 12})))",
    "a row of a dict": (
        "CASES = [{'name': 'apple'}]\ndef test_it():\n    for case in CASES:\n"
        "        _oc_see(0, lambda: greet(case['name']))"
    ),
    "set-up": (
        "class TestIt:\n    def setup_method(self):\n        self.name = 'apple'\n    def test_it(self):\n"
        "        _oc_see(0, lambda: greet(self.name))"
    ),
    "a function that the product calls": "def test_it():\n    _oc_see(0, lambda: deliver(lambda name: name + 'apple'))",
    "the environment": (
        "def test_it(monkeypatch):\n    monkeypatch.setenv('SHOP_NAME', 'apple')\n    _oc_see(0, lambda: greet())"
    ),
    "a guard": "def test_it():\n    if sys.platform == 'linux':\n        _oc_see(0, lambda: greet())",
    "a program": (
        "import subprocess\ndef test_it():\n"
        "    out = subprocess.run([sys.executable, '-m', 'shop', 'apple'], capture_output=True)\n"
        "    _oc_see(0, lambda: out.stdout)"
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_of_the_product_stay(name: str) -> None:
    body = textwrap.dedent(INPUTS[name])
    assert left(body) == HEAD + body


SHOWN = {
    "a comparison": (
        "def test_it():\n    n = 0\n    for text in greet():\n        if text == 'apple':\n"
        "            n += 1\n    _oc_see(0, lambda: n)"
    ),
    "a method": "def test_it():\n    _oc_see(0, lambda: greet().startswith('apple'))",
    "a helper": (
        "def check_it(text):\n    return re.fullmatch('apple', text)\ndef test_it():\n"
        "    _oc_see(0, lambda: check_it(greet()))"
    ),
    "a helper's second argument": "def same(a, b):\n    assert a == b\ndef test_it():\n    same(greet(), 'apple')",
    "a pattern": "LINE = re.compile('apple')\ndef test_it():\n    _oc_see(0, lambda: LINE.match(greet()))",
    "a double": (
        "class Door:\n    def knock(self, text):\n        self.opened = text == 'apple'\n"
        "def test_it():\n    door = Door()\n    deliver(door)\n    _oc_see(0, lambda: door.opened)"
    ),
    "an object that looks": (
        "class Door:\n    def __init__(self):\n        self.opened = 0\n    def knock(self, text):\n"
        "        if text.startswith('apple'):\n            self.opened += 1\n"
        "def test_it():\n    door = Door()\n    deliver(door)\n    _oc_see(0, lambda: door.opened)"
    ),
    "a callback": (
        "def test_it():\n    seen = []\n    deliver(lambda text: seen.append(text == 'apple'))\n"
        "    _oc_see(0, lambda: seen)"
    ),
    "the other column": (
        "CASES = [('pear', 'apple')]\ndef test_it():\n    for name, want in CASES:\n"
        "        _oc_see(0, lambda: [want].index(greet(name)))"
    ),
    "the other key": (
        "CASES = [{'name': 'pear', 'want': 'apple'}]\n@pytest.mark.parametrize('case', CASES)\n"
        "def test_it(case):\n    _oc_see(0, lambda: len({greet(case['name']), case['want']}))"
    ),
    "the other field": (
        "from collections import namedtuple\nCase = namedtuple('Case', 'name want')\nCASES = [Case('pear', 'apple')]\n"
        "def test_it():\n    for case in CASES:\n        _oc_see(0, lambda: {case.want: 1}.get(greet(case.name)))"
    ),
    "an attribute": (
        "class TestIt:\n    want = 'apple'\n    def test_it(self):\n        _oc_see(0, lambda: self.want in greet())"
    ),
    "a hook": (
        "WANT = {}\ndef setup_module():\n    WANT['x'] = 'apple'\ndef test_it():\n"
        "    _oc_see(0, lambda: WANT['x'] in greet())"
    ),
    "a file's name": "def test_it(tmp_path):\n    greet(tmp_path)\n    _oc_see(0, lambda: (tmp_path / 'apple').exists())",
    "a warning": "def test_it():\n    with pytest.warns(UserWarning, match='apple'):\n        greet()",
    "a case": (
        "def test_it():\n    match greet():\n        case 'apple':\n            found = 1\n        case _:\n"
        "            found = 0\n    _oc_see(0, lambda: found)"
    ),
    "the environment": (
        "def test_it(monkeypatch):\n    monkeypatch.setenv('apple', '1')\n"
        "    _oc_see(0, lambda: os.environ.get(greet()))"
    ),
    "a difference": "from datetime import date\ndef test_it():\n    _oc_see(0, lambda: (greet() - date(2024, 1, 31)).days)",
    "a mark": "@pytest.mark.apples('apple')\ndef test_it():\n    _oc_see(0, lambda: greet())",
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_product_does_not_get_goes(name: str) -> None:
    text = left(SHOWN[name])
    assert "apple" not in text.replace("apples", "") and "2024" not in text
    assert not list(unexplained({"test_it.py": ast.parse(text)}))


def test_only_the_test_with_the_literal_goes() -> None:
    text = left(
        "def test_a():\n    _oc_see(0, lambda: greet('pear'))\ndef test_b():\n    _oc_see(1, lambda: 'apple' in greet())"
    )
    assert "def test_a" in text and "def test_b" not in text


def test_files_of_helpers_are_one_program_with_the_tests() -> None:
    body = "import helpers\ndef test_it():\n    _oc_see(0, lambda: greet(helpers.NAME))"
    helpers = "NAME = 'pear'\nWANT = 'apple'\n"
    files = purge({"tests/test_it.py": HEAD + body, "tests/helpers.py": helpers})
    assert files["tests/test_it.py"] == HEAD + body
    assert files["tests/helpers.py"] == "NAME = 'pear'\n"


def test_an_author_answers_for_the_literals_of_a_file() -> None:
    body = "NAME = 'apple'\ndef test_it():\n    _oc_see(0, lambda: NAME in open('greet.py').read())\n"
    assert shows_public_alone(f"import re\n  {PUBLIC}  \n{body}") and not shows_public_alone(body)
    assert not shows_public_alone(f"TEXT = '{PUBLIC}'\n"), "a line of its own"
    both = {"tests/test_it.py": body, "tests/test_other.py": body}
    kept = purge(both, public=["tests/test_it.py"])
    assert kept["tests/test_it.py"] == body and "def test_it" not in kept["tests/test_other.py"]


def test_a_file_that_cannot_be_read_is_left_empty() -> None:
    assert purge({"a.py": "def broken(:\n", "b.py": "x = 0\n"}) == {"a.py": "def broken(:\n", "b.py": "x = 0\n"}


@given(st.text(alphabet="abc'\"()[]{}:=\n .,", max_size=60))
def test_any_text_is_borne(text: str) -> None:
    assert set(purge({"a.py": text})) == {"a.py"}
