"""Remove tests from a test file; the rest of its text stays unchanged."""

from __future__ import annotations

import ast
from collections.abc import Collection


def functions_of(test_ids: Collection[str]) -> dict[str, set[tuple[str, ...]]]:
    """Test file → (class names..., function name) of the test functions behind `test_ids`."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for test_id in test_ids:
        path, *names = test_id.split("[", 1)[0].split("::")
        if names:
            found.setdefault(path, set()).add(tuple(names))
    return found


def remove_functions(source: str, functions: Collection[tuple[str, ...]]) -> str:
    """`source` without the named functions (with their decorators); an emptied class keeps a `pass`.

    Raises SyntaxError.
    """
    lines = source.split("\n")
    drop: list[tuple[int, int, str]] = []
    _find(ast.parse(source).body, (), set(functions), drop)
    for first, last, filler in sorted(drop, reverse=True):
        lines[first - 1 : last] = [filler] if filler else []
    return "\n".join(lines)


def function_text(source: str, function: tuple[str, ...]) -> str | None:
    """The text of one function of `source`, dedented, without decorators; None when it is not there."""
    body = ast.parse(source).body
    for name in function[:-1]:
        body = next((n.body for n in body if isinstance(n, ast.ClassDef) and n.name == name), [])
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function[-1]:
            assert node.end_lineno is not None
            lines = source.split("\n")[node.lineno - 1 : node.end_lineno]
            return "\n".join(line[node.col_offset :] if not line[: node.col_offset].strip() else line for line in lines)
    return None


def _find(
    body: list[ast.stmt], inside: tuple[str, ...], functions: set[tuple[str, ...]], drop: list[tuple[int, int, str]]
) -> None:
    """Collect (first line, last line, filler) of what to take out of one class or module body."""
    doomed = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (*inside, node.name) in functions:
            doomed.append(node)
        elif isinstance(node, ast.ClassDef):
            _find(node.body, (*inside, node.name), functions, drop)
    for index, node in enumerate(doomed):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        assert node.end_lineno is not None
        empties = bool(inside) and len(doomed) == len(body) and index == 0
        drop.append((first, node.end_lineno, " " * node.col_offset + "pass" if empties else ""))
