# A hidden check: nothing of the package uses a deprecated function any more, which itself still works. FACTS stands above.
# mypy: ignore-errors
import ast
import importlib
import warnings
from pathlib import Path


def uses():
    """Places that read the deprecated name, other than its own definition."""
    found = []
    for path in sorted(Path(".").rglob("*.py")):
        if {"tests", "test", ".venv"} & set(path.parts) or str(path) in FACTS["tests"]:  # noqa: F821
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            read = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if read == FACTS["old"]:  # noqa: F821
                found.append(f"{path}:{node.lineno}")
    return found


def test_nothing_uses_the_deprecated_function():
    assert uses() == []


def test_the_deprecated_function_is_still_there_and_warns():
    function = getattr(importlib.import_module(FACTS["module"]), FACTS["old"])  # noqa: F821
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            function()
        except TypeError:
            pass  # it lacks its arguments: only the warning is looked for
    assert [one.category.__name__ for one in seen][:1] == ["DeprecationWarning"]
