import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.mutation import rules
from sandbox.mutation.operators import OPERATORS, Mutation, Source, is_valid, mutations_of

TABLES = [name for name in dir(rules) if name.endswith("_SWAPS")]

CODE = '''
async def shelf(items, limit=10, *, strict=True, name="a", rest=None):
    """Docstring with 3 and < signs stays."""
    total = 0
    if not items:
        return None
    for index, item in items[1:limit]:
        if item < 3 and item is not None:
            total += item * 2  # a < comment
            continue
        elif not item:
            break
    while total >= limit:
        total -= min(total, 5)
        total = total - limit - index
    items.append(total)
    limit = await name(items, limit, key=1)
    if strict:
        first = 1
        second = 2
    else:
        second = 3
    try:
        pass
    except KeyError:
        total = 1
    except OSError:
        total = 2
    if "é" in items:
        raise ValueError("é < 3")
    return (total
            # > a comment between
            > limit)
'''.encode()


def mutate(code=CODE):
    source = Source(code)
    (function,) = source.tree.body
    return mutations_of(source, function)


@pytest.mark.parametrize("name", TABLES)
def test_swap_tables_are_two_way(name):
    table = getattr(rules, name)
    assert {table[table[word]] for word in table} == set(table)
    assert all(table[word] != word and table[table[word]] == word for word in table)


def test_every_operator_finds_its_place():
    found = {m.operator for m in mutate()}
    assert found == set(OPERATORS)
    assert len(OPERATORS) >= 14


EXAMPLES = {
    "arithmetic": ("return a + b", "return a - b"),
    "boolean": ("return a and b", "return a or b"),
    "broken chain": ("return a + b + 1", "return a + b"),
    "comparison": ("return a < b", "return a <= b"),
    "constant": ("return True", "return False"),
    "default argument": ('def f(a="x"):\n    return a', 'def f(a=""):\n    return a'),
    "dropped argument": ("return b(a, key=1)", "return b(a)"),
    "dropped await": ("return await b(a)", "return b(a)"),
    "dropped not": ("return not a", "return a"),
    "exception type": ("raise KeyError(a)", "raise IndexError(a)"),
    "inverted branches": (
        "if a:\n        b = 1\n    else:\n        b = 2",
        "if a:\n        b = 2\n    else:\n        b = 1",
    ),
    "negated condition": ("if a:\n        b()", "if not a:\n        b()"),
    "off by one": ("return a[7]", "return a[8]"),
    "removed assignment": ("a = b\n    return a", "return a"),
    "removed branch": ("if a:\n        b()\n    else:\n        a()", "if a:\n        b()"),
    "removed guard": ("if a:\n        return None\n    b()", "b()"),
    "removed handler": (
        "try:\n        a()\n    except b:\n        a = 1\n    except f:\n        a = 2",
        "try:\n        a()\n    except f:\n        a = 2",
    ),
    "removed loop": ("for a in b:\n        b(a)\n    return a", "return a"),
    "removed statement": ("# says b\n    b(a)\n    return a", "return a"),
    "return value": ("return a", "return None"),
    "slice bound": ("return a[1:b]", "return a[:b]"),
    "swapped arguments": ("return f(a, b)", "return f(b, a)"),
    "swapped lines": ("a = 1\n    b = 2", "b = 2\n    a = 1"),
    "swapped operands": ("return a - b", "return b - a"),
    "swapped targets": ("a, b = b", "b, a = b"),
    "wrong function": ("return min(a)", "return max(a)"),
    "wrong jump": ("for a in b:\n        break", "for a in b:\n        continue"),
    "wrong variable": ("return a + b", "return a + a"),
}
"""Operator → (statement, what it makes of it)."""


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_each_operator_makes(operator):
    before, after = EXAMPLES[operator]
    head = "" if before.startswith("def") else "async def f(a, b):\n    "
    source, wanted = f"{head}{before}\n".encode(), f"{head}{after}\n".encode()
    made = [m.apply(source) for m in mutate(source) if m.operator == operator]
    assert wanted in made, [text.decode() for text in made]


def test_the_operators_are_listed_in_the_documentation():
    text = (Path(__file__).parents[3] / "docs/sandbox/tasks.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^Operators: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert tuple(" ".join(line.split()).split(", ")) == OPERATORS


def test_no_mutation_leaves_a_mark():
    """Neither an empty block nor a negation that nobody would write tells where the bug is."""
    added = [m.text for m in mutate()]
    assert not [text for text in added if re.search(r"\bpass\b|not \(|\bif True\b", text)]


@pytest.mark.parametrize(
    ("condition", "opposite"), [("a < 3", "a >= 3"), ("a.b", "not a.b"), ("a(b)", "not a(b)"), ("a >= 3", "a < 3")]
)
def test_conditions_are_negated_as_people_write_it(condition, opposite):
    source = f"def f(a, b):\n    if {condition}:\n        return b\n".encode()
    made = [m.apply(source).decode() for m in mutate(source) if m.operator == "negated condition"]
    assert made == [f"def f(a, b):\n    if {opposite}:\n        return b\n"]


@pytest.mark.parametrize("block", ["b(a)", "for b in a:\n        a(b)", "if a:\n        return b"])
def test_the_only_statement_of_a_block_stays(block):
    source = f'def f(a, b):\n    """Docs."""\n    {block}\n'.encode()
    assert not [m for m in mutate(source) if m.operator.startswith("removed")]


def test_docstrings_stay_in_their_place():
    source = b'def f(a):\n    """Says."""\n    b = 1\n    c = 2\n    return b + c\n'
    assert all(b'f(a):\n    """Says."""' in m.apply(source) for m in mutate(source))


def test_mutants_parse_differ_and_touch_one_place():
    start = CODE.index(b'"""') + 3
    docstring = range(start, CODE.index(b'"""', start))
    for mutation in mutate():
        after = mutation.apply(CODE)
        assert is_valid(CODE, after), mutation
        assert mutation.start not in docstring
        assert len(after) - len(CODE) == len(mutation.text.encode()) - (mutation.end - mutation.start)


def test_comments_between_operands_are_not_taken_for_operators():
    texts = {m.apply(CODE) for m in mutate() if m.operator == "comparison"}
    assert any(b"            >= limit)" in text for text in texts)
    assert all(b"# > a comment between" in text for text in texts)


def test_two_words_operators_with_odd_spacing():
    source = b"def f(a, b):\n    return a  not   in b, a is  not b\n"
    texts = {m.apply(source) for m in mutate(source) if m.operator == "comparison"}
    assert texts == {
        b"def f(a, b):\n    return a  in b, a is  not b\n",
        b"def f(a, b):\n    return a  not   in b, a is b\n",
    }


@given(st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "is", "is not", "in", "not in"]), st.integers(1, 3))
def test_a_comparison_swapped_twice_is_the_original(token, spaces):
    gap = " " * spaces
    source = f"def f(a, b):\n    return a{gap}{token}{gap}b\n".encode()

    def swap(code):
        (mutation,) = [m for m in mutate(code) if m.operator == "comparison"]
        return mutation.apply(code)

    assert swap(swap(source)) == source


def test_what_means_the_same_is_not_valid():
    assert not is_valid(b"x = 1\n", b"x = 1  # comment\n")
    assert not is_valid(b"x = 1\n", b"x = (\n")
    assert is_valid(b"x = 1\n", b"x = 2\n")
    assert ast.parse(Mutation("off by one", 4, 5, "2").apply(b"x = 1\n"))
