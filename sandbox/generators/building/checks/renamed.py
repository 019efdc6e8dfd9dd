# A hidden check: a function has another name, everywhere. Its constants stand above.
# mypy: ignore-errors
# pragma: public literals
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
        if not {"tests", "test", ".venv"} & set(path.parts) and str(path) not in TESTS:  # noqa: F821
            found += names_of(ast.parse(path.read_bytes()))
    return found


def users():
    """Top-level definitions of the product that read the new name, as `path:name`."""
    found = set()
    for path in PRODUCT:  # noqa: F821
        body = ast.parse(Path(path).read_bytes()).body if Path(path).is_file() else []
        for part in body:
            name = getattr(part, "name", "")
            reads = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(part)}
            if NEW in reads and name != OLD:  # noqa: F821
                found.add(f"{path}:{name}")
    return sorted(found)


def test_the_new_name_is_defined_with_the_same_parameters():
    tree = ast.parse(Path(PATH).read_bytes())  # noqa: F821
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = [node for node in tree.body if isinstance(node, kinds) and node.name == NEW]  # noqa: F821
    assert [ast.unparse(node.args) for node in found] == [PARAMETERS]  # noqa: F821


def test_the_old_name_is_gone():
    assert used().count(OLD) == 0  # noqa: F821


def test_the_new_name_is_used_where_the_old_one_was():
    assert used().count(NEW) >= USES  # noqa: F821


def test_each_user_of_the_old_name_uses_the_new_one():
    assert users() == USERS  # noqa: F821
