# A hidden check: nothing of the package uses a deprecated function any more, which itself still works. Its constants stand above.
# mypy: ignore-errors
# pragma: public literals
import ast
import importlib
import warnings
from pathlib import Path


def uses():
    """Places that read the deprecated name, other than its own definition."""
    found = []
    for path in sorted(Path(".").rglob("*.py")):
        if {"tests", "test", ".venv"} & set(path.parts) or str(path) in TESTS:  # noqa: F821
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            read = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if read == OLD:  # noqa: F821
                found.append(f"{path}:{node.lineno}")
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


def test_nothing_uses_the_deprecated_function():
    assert uses() == []


def test_each_caller_uses_the_new_function():
    assert users() == USERS  # noqa: F821


def test_the_deprecated_function_is_still_there_and_warns():
    function = getattr(importlib.import_module(MODULE), OLD)  # noqa: F821
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            function()
        except TypeError:
            pass  # it lacks its arguments: only the warning is looked for
    assert [one.category.__name__ for one in seen][:1] == ["DeprecationWarning"]
