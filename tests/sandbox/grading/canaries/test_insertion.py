"""Mutated siblings of Python tests and where they are prepared, without any sandbox."""

from __future__ import annotations

import ast
import math
import random
import statistics
import textwrap
from collections import Counter
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.grading.canaries.base import SiblingTest
from sandbox.grading.canaries.insertion import Renaming, blocks_by_name, insert_canaries
from sandbox.grading.canaries.literals import NEUTRAL_WORDS
from sandbox.grading.canaries.python import PythonTests
from sandbox.grading.canaries.rust import RustTests
from sandbox.grading.verifiers.canary_pool import CanaryPool, candidate_siblings
from sandbox.grading.verifiers.suite import draw_siblings
from sandbox.tasks.spec import PytestVerifier
from tests.sandbox.grading.make import LEDGER_FAILING, LEDGER_PASSING, LEDGER_TEST_FILE, LEDGER_TESTS

PYTHON = PythonTests()
FAILING = tuple(f"{LEDGER_TEST_FILE}::{name}" for name in LEDGER_FAILING)
EXPECTED = (*FAILING, *(f"{LEDGER_TEST_FILE}::{name}" for name in LEDGER_PASSING))
VERIFIER = PytestVerifier(
    test_files={LEDGER_TEST_FILE: LEDGER_TESTS, "tests/data.txt": "x"}, fail_to_pass=FAILING, pass_to_pass=EXPECTED[4:]
)
FULL = Renaming(files=True, names=True)


def prepared(seed: int, renaming: Renaming = FULL, count: int = 99):
    draw = random.Random(seed)
    siblings = candidate_siblings(PYTHON, VERIFIER, draw)[:count]
    return insert_canaries(PYTHON, VERIFIER.test_files, EXPECTED, siblings, renaming=renaming, draw=draw)


def functions(source: bytes) -> list[str]:
    return [
        node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_draw_is_a_file_with_all_tests_and_all_siblings(seed):
    found = prepared(seed)
    (path,) = [p for p in found.files if p.endswith(".py")]
    names = functions(found.files[path])
    assert len(names) == len(set(names)) == 7 + len(found.siblings)
    assert set(found.ids) == set(EXPECTED) and len(set(found.ids.values())) == len(EXPECTED)
    ran = {test_id.split("[")[0].rsplit("::")[-1] for test_id in (*found.ids.values(), *found.must_fail)}
    assert ran <= set(names) and all(test_id.startswith(f"{path}::") for test_id in found.ids.values())
    assert found.files["tests/data.txt"] == b"x"


def test_draws_differ_in_every_respect():
    drawn = [prepared(seed, count=3) for seed in range(12)]
    assert len({tuple(sorted(d.files)) for d in drawn}) > 6
    assert len({tuple(d.ids.values()) for d in drawn}) == 12
    places = set()
    for one in drawn:
        (path,) = [p for p in one.files if p.endswith(".py")]
        names = functions(one.files[path])
        real = one.ids[FAILING[0]].rsplit("::")[-1]
        places.add(names.index(real))
    assert len(places) > 1, "the real test is not always the first of its cluster"


@pytest.mark.parametrize("seed", range(20))
def test_no_new_file_takes_the_place_of_a_module_that_the_tests_load(seed):
    """`tests/common.rs` beside `tests/common/mod.rs` does not compile, and the module need not be one of the hidden files."""
    loaded = "".join(f"mod {word};\n" for word in NEUTRAL_WORDS[::2])
    files = {"tests/greet.rs": f"{loaded}\n#[test]\nfn ann() {{\n    assert_eq!(1, 1);\n}}\n"}
    files |= {f"tests/{word}/mod.rs": "" for word in NEUTRAL_WORDS[1::2]}
    ids = ["tests/greet.rs::ann"]
    found = insert_canaries(RustTests(), files, ids, [], renaming=FULL, draw=random.Random(seed))
    (path,) = found.files.keys() - files.keys()
    assert PurePosixPath(path).stem not in NEUTRAL_WORDS


def test_without_disguise_ids_and_names_stay():
    found = prepared(1, Renaming(files=False, names=False))
    assert found.ids == {test_id: test_id for test_id in EXPECTED}
    assert LEDGER_TEST_FILE in found.files


def test_a_sibling_differs_from_its_test_in_one_literal_and_its_name():
    draw = random.Random(5)
    for sibling in candidate_siblings(PYTHON, VERIFIER, draw):
        block = blocks_by_name(PYTHON, LEDGER_TESTS.encode())[sibling.names]
        old = block[sibling.start : sibling.end].decode()
        assert old != sibling.text and "\n" not in old
        changed = block[: sibling.start] + sibling.text.encode() + block[sibling.end :]
        # The number of places that could be changed tells nothing.
        assert len(PYTHON.values(changed)) == len(PYTHON.values(block))


def demands(source: str) -> list[str]:
    return sorted({source[v.start : v.end] for v in PYTHON.values(source.encode()) if v.weight})


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("assert f(1) == 2", ["2"]),
        ("assert 2 == f(1)", ["2"]),
        ("assert f(1) == [3, {'a': 4}]", ["[3, {'a': 4}]"]),
        ("assert f(1) == 2 and g(3) == 4", ["2", "4"]),
        ("assert f(1) == 2 or g(3) == 4", []),
        ("assert f(1) != 2", []),
        ("assert f(1) < 2", []),
        ("assert f(1) is True", ["True"]),
        ("assert f(1) == approx(2.5)", ["2.5"]),
        ("assert 1 == 1", []),
        ("self.assertEqual(f(1), 2)", ["2"]),
        ("want = 3\n    assert f(1) == want", ["3"]),
        ("x = 3\n    assert f(x) == x", []),
        ("for a, b in [(1, 2), (3, 4)]:\n        assert f(a) == b", ["2", "4"]),
        ("with pytest.raises(ValueError):\n        f(1)", ["ValueError"]),
    ],
)
def test_only_demands_are_changed(body, found):
    """Another input is another test, which other right work may pass; another expectation contradicts the first."""
    assert demands(f"def test_a():\n    {body}\n") == found


def test_of_the_parameters_only_the_expected_column_is_changed():
    head = "@pytest.mark.parametrize('a, b', [(1, 2), (3, 4)])\ndef test_a(a, b):\n"
    assert demands(head + "    assert f(a) == b\n") == ["2", "4"]
    assert demands(head + "    assert f(a, b) == 9\n") == ["9"]
    assert demands(head + "    assert f(b) == b\n") == []


def test_names_that_are_used_elsewhere_are_kept():
    source = "def test_a():\n    assert 1 == 1\n\n\ndef test_b():\n    test_a()\n    assert 2 == 2\n"
    ids = ("t.py::test_a", "t.py::test_b")
    found = insert_canaries(PYTHON, {"t.py": source}, ids, [], renaming=FULL, draw=random.Random(0))
    assert found.ids["t.py::test_a"].endswith("::test_a") and not found.ids["t.py::test_b"].endswith("::test_b")


def test_inherited_tests_keep_their_names():
    source = "class A:\n    def test_x(self):\n        assert 1\n\n\nclass TestB(A):\n    pass\n"
    ids = ("t.py::TestB::test_x",)
    found = insert_canaries(
        PYTHON, {"t.py": source}, ids, [], renaming=Renaming(files=False, names=True), draw=random.Random(0)
    )
    assert found.ids == {ids[0]: ids[0]}


def test_a_file_without_a_last_newline_and_crlf_stay_whole():
    for source in (b"def test_a():\n    assert f() == 12", b"def test_a():\r\n    assert f() == 12\r\n"):
        sibling = SiblingTest(
            path="t.py", names=("test_a",), start=source.index(b"12"), end=source.index(b"12") + 2, text="13"
        )
        found = insert_canaries(
            PYTHON, {"t.py": source.decode()}, ["t.py::test_a"], [sibling], renaming=FULL, draw=random.Random(3)
        )
        (text,) = found.files.values()
        assert len(functions(text)) == 2 and text.count(b"12") == text.count(b"13") == 1


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_no_source_is_too_strange(source):
    blocks = PYTHON.blocks(source)
    for block in blocks:
        assert 0 <= block.start < block.name_start < block.name_end <= block.end <= len(source)
        PYTHON.values(source[block.start : block.end])


PIECES = st.lists(
    st.sampled_from(
        ["@mark\n", "def test_a(x):\n", "    assert f(1) == 'é'\n", "class TestA:\n", "    def test_b(self):\n",
         "        '''doc'''\n", "        assert not g('a\\n', 2.5, True)\n", "# c\n", "\n", "    x = f'{1}'\n", "\x0c\n",
         "async def test_c():\n", "    with raises(ValueError): h([1, 2])\n", "\t\n", "def test_d(): assert 1 == 1\n"]
    ), max_size=14,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(PIECES, st.integers(0, 99))
@example(["def test_a(x):\n", "    def test_b(self):\n", "        assert not g('a\\n', 2.5, True)\n"], 0)
def test_any_file_that_parses_still_parses_when_planted(pieces, seed):
    source = "".join(pieces)
    blocks = PYTHON.blocks(source.encode())
    ids = tuple({"::".join(["t.py", *b.names]): None for b in blocks})
    if not ids:
        return
    draw = random.Random(seed)
    verifier = PytestVerifier(test_files={"t.py": source}, fail_to_pass=ids)
    siblings = candidate_siblings(PYTHON, verifier, draw)
    found = insert_canaries(PYTHON, verifier.test_files, ids, siblings, renaming=FULL, draw=draw)
    (text,) = found.files.values()
    tests = blocks_by_name(PYTHON, source.encode())
    copied = [
        functions(textwrap.dedent(tests[sibling.names].decode()).encode()) for sibling in siblings
    ]  # with what is within
    assert len(functions(text)) == len(functions(source.encode())) + sum(map(len, copied))


def test_a_guess_at_which_member_of_each_cluster_is_real_hardly_ever_meets_them_all():
    """Work may read the files and choose; the chance is one in the size of each cluster, multiplied over clusters."""
    draw = random.Random(5)
    siblings = [sibling.model_copy(update={"seconds": 0.01}) for sibling in candidate_siblings(PYTHON, VERIFIER, draw)]
    pool = CanaryPool(bundle_hash="0" * 64, files=True, names=True, siblings=tuple(siblings))
    chances = []
    for _ in range(500):
        clusters = Counter((sibling.path, sibling.names) for sibling in draw_siblings(pool, VERIFIER, draw))
        assert len(clusters) >= 4, "the ledger has seven tests"
        chances.append(math.prod(1 / (1 + count) for count in clusters.values()))
    assert statistics.mean(chances) < 0.03 and max(chances) <= 1 / 16
