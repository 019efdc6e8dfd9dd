# A hidden check: a function lies in another module and is still found where it was. Its constants stand above.
# mypy: ignore-errors
# pragma: public literals
import ast
import importlib
from pathlib import Path


def defined_in(path):
    if not Path(path).is_file():
        return []
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.parse(Path(path).read_bytes()).body if isinstance(node, kinds) and node.name == NAME]  # noqa: F821


def test_it_is_defined_in_the_new_module_with_the_same_parameters():
    assert [ast.unparse(node.args) for node in defined_in(TO)] == [PARAMETERS]  # noqa: F821


def test_it_is_no_longer_defined_in_the_old_module():
    assert defined_in(PATH) == []  # noqa: F821


def test_both_modules_give_the_same_function():
    old = importlib.import_module(MODULE)  # noqa: F821
    new = importlib.import_module(TO_MODULE)  # noqa: F821
    assert getattr(old, NAME) is getattr(new, NAME)  # noqa: F821
