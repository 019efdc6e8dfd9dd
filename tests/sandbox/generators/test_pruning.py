import ast

from sandbox.generators.building.pruning import function_text, functions_of, remove_functions

TESTS = """import pytest


@pytest.mark.parametrize(
    "x",
    [1, 2],
)
def test_a(x):
    assert x == 1


def test_b():
    assert True


class TestC:
    def test_d(self):
        assert 1 == 2

    @staticmethod
    def test_e():
        pass


class TestF:
    def test_d(self):
        assert "long"
"""


def names(source):
    return [n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]


def test_ids_become_functions_without_parameters():
    ids = ["t/a.py::test_a[1]", "t/a.py::test_a[x::y]", "t/a.py::TestC::test_d", "b.py::test"]
    found = functions_of(ids[:1] + ids[2:])
    assert found == {"t/a.py": {("test_a",), ("TestC", "test_d")}, "b.py": {("test",)}}


def test_removal_takes_decorators_and_leaves_the_rest():
    pruned = remove_functions(TESTS, {("test_a",), ("TestC", "test_d")})
    assert "parametrize" not in pruned
    assert names(pruned) == ["test_b", "test_e", "test_d"]
    assert "import pytest" in pruned


def test_an_emptied_class_keeps_its_place():
    pruned = remove_functions(TESTS, {("TestC", "test_d"), ("TestC", "test_e")})
    assert "class TestC:\n    pass" in pruned
    ast.parse(pruned)


def test_function_text_is_dedented():
    assert function_text(TESTS, ("TestC", "test_d")) == "def test_d(self):\n    assert 1 == 2"
    assert function_text(TESTS, ("TestF", "test_x")) is None


def test_a_parameter_with_colons_is_part_of_the_case():
    assert functions_of(["t.py::test_a[x::y]"]) == {"t.py": {("test_a",)}}
