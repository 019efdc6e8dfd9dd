"""Tests for a checkout without any: each example in its docstrings and its README becomes one test.

Examples are copied verbatim into test files (an outdated example is a failing test), so they do not change when the
code beside them does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from sandbox.repositories.checkout import Checkout

FOLDER = "tests/examples"
MAX_FILES = 60
MAX_TESTS = 400
"""Maximum tests per file."""
EXAMPLE = re.compile(r"^[ \t]*>>> ", re.MULTILINE)
READMES = re.compile(r"readme(?:\.(?:rst|md|txt))?", re.IGNORECASE)
HEAD = '''"""Examples of {place} as tests, copied when this environment was installed: the project has no others."""

import doctest
import importlib

MODULE = {module!r}


def check(name, text):
    names = dict(vars(importlib.import_module(MODULE))) if MODULE else {{"__name__": "__main__"}}
    example = doctest.DocTestParser().get_doctest(text, names, name, {place!r}, 0)
    said = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert not runner.run(example, out=said.append).failed, "".join(said)
'''


def files(checkout: Checkout, root: str, modules: tuple[str, ...]) -> dict[str, str]:
    """Test files by path; empty where no docstring and no README has an example. `modules` are below `root`."""
    prefix = "" if root == "." else f"{root}/"
    found: dict[str, str] = {}
    for path in sorted(checkout.files):
        if len(found) == MAX_FILES:
            break
        inner = path.removeprefix(prefix)
        ours = path.startswith(prefix) and inner.endswith(".py") and re.split(r"[/.]", inner)[0] in modules
        text = checkout.text(path) if ours or ("/" not in path and READMES.fullmatch(path)) else ""
        if not EXAMPLE.search(text):
            continue
        module = inner.removesuffix(".py").removesuffix("/__init__").replace("/", ".") if ours else ""
        tests = list(_docstrings(text)) if ours else [("readme", _plain(text))]
        if tests:
            name = re.sub(r"\W+", "_", module or PurePosixPath(path).name.lower())
            found[f"{FOLDER}/test_examples_{name}.py"] = HEAD.format(place=path, module=module) + "".join(
                _test(test, example, number) for number, (test, example) in enumerate(tests[:MAX_TESTS])
            )
    return found


def _docstrings(text: str) -> Iterator[tuple[str, str]]:
    """(qualified name, docstring) of whatever has examples, in the order of the file."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    yield from _within(tree, "module")


def _within(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[tuple[str, str]]:
    said = ast.get_docstring(node)
    if said and EXAMPLE.search(said):
        yield name, said
    for inner in node.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ():
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _within(inner, inner.name if isinstance(node, ast.Module) else f"{name}.{inner.name}")


def _plain(text: str) -> str:
    """Without the fences of code, which an example's output would run into."""
    return re.sub(r"(?m)^[ \t]*(?:```|~~~).*$", "", text)


def _test(name: str, example: str, number: int) -> str:
    lines = "\n".join(f"        {line + chr(10)!r}" for line in example.splitlines())
    return f"\n\ndef test_{number}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}():\n    check(\n        {name!r},\n{lines},\n    )\n"
