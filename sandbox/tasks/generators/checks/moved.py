# A hidden check: a function lies in another module and is still found where it was. FACTS stands above.
# mypy: ignore-errors
import ast
import importlib
from pathlib import Path


def defined_in(path):
    if not Path(path).is_file():
        return []
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node.name for node in ast.parse(Path(path).read_bytes()).body if isinstance(node, kinds)]


def test_it_is_defined_in_the_new_module():
    assert defined_in(FACTS["to"]).count(FACTS["name"]) == 1  # noqa: F821


def test_it_is_no_longer_defined_in_the_old_module():
    assert defined_in(FACTS["path"]).count(FACTS["name"]) == 0  # noqa: F821


def test_both_modules_give_the_same_function():
    old = importlib.import_module(FACTS["module"])  # noqa: F821
    new = importlib.import_module(FACTS["to_module"])  # noqa: F821
    assert getattr(old, FACTS["name"]) is getattr(new, FACTS["name"])  # noqa: F821
