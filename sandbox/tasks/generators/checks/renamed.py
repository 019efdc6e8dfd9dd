# A hidden check: a function has another name, everywhere. FACTS stands above.
# mypy: ignore-errors
import ast
from pathlib import Path


def names_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.name
            yield node.asname


def used():
    found = []
    for path in sorted(Path(".").rglob("*.py")):
        if not {"tests", "test", ".venv"} & set(path.parts) and str(path) not in FACTS["tests"]:  # noqa: F821
            found += names_of(ast.parse(path.read_bytes()))
    return found


def test_the_new_name_is_defined_with_the_same_parameters():
    tree = ast.parse(Path(FACTS["path"]).read_bytes())  # noqa: F821
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = [node for node in tree.body if isinstance(node, kinds) and node.name == FACTS["new"]]  # noqa: F821
    assert [ast.unparse(node.args) for node in found] == [FACTS["parameters"]]  # noqa: F821


def test_the_old_name_is_gone():
    assert used().count(FACTS["old"]) == 0  # noqa: F821


def test_the_new_name_is_used_where_the_old_one_was():
    assert used().count(FACTS["new"]) >= FACTS["uses"]  # noqa: F821
