"""Parametrized arguments of a Python test: which column of a written-out table each one is."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from sandbox.grading.observations.python_tests.purity import Cell, Function, Module, called
from sandbox.grading.observations.python_tests.trees import walk


def tables(function: Function, module: Module, tree: ast.Module) -> dict[str, list[Cell] | None]:
    """The parametrized arguments of a test → their column."""
    columns: dict[str, list[Cell] | None] = {}
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or called(decorator) != "parametrize" or len(decorator.args) < 2:
            continue
        if any(word.arg == "indirect" for word in decorator.keywords):
            continue
        names, rows = parameter_names(decorator.args[0]), _rows(decorator.args[1], module, tree)
        for index, name in enumerate(names or ()):
            columns[name] = None if rows is None else _table_column(rows, index, len(names or ()))
    return columns


def _rows(node: ast.expr, module: Module, tree: ast.Module) -> list[ast.expr] | None:
    if isinstance(node, ast.Name):
        binding = module.bindings.get(node.id)
        uses = sum(isinstance(n, ast.Name) and n.id == node.id and isinstance(n.ctx, ast.Load) for n in walk(tree))
        if binding is None or binding.cells or len(binding.assigns) != 1 or uses != 1:
            return None
        value = binding.assigns[0].value
        return value.elts if isinstance(value, ast.List | ast.Tuple) else None
    return node.elts if isinstance(node, ast.List | ast.Tuple) else None


def _table_column(rows: Sequence[ast.expr], index: int, count: int) -> list[Cell] | None:
    found = []
    for number, row in enumerate(rows):
        if isinstance(row, ast.Starred):
            return None
        holder: list[ast.expr]
        if isinstance(row, ast.Call):
            if called(row) != "param" or len(row.args) != count:
                return None
            holder, at = row.args, index
        elif count == 1:
            holder, at = rows if isinstance(rows, list) else list(rows), number
        elif isinstance(row, ast.Tuple | ast.List) and len(row.elts) == count:
            holder, at = row.elts, index
        else:
            return None
        if isinstance(holder[at], ast.Starred):
            return None
        found.append(Cell(holder, at))
    return found


def parameter_names(node: ast.expr) -> list[str] | None:
    """The argument names of `parametrize`; None when they are computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [part.strip() for part in node.value.split(",") if part.strip()]
    if isinstance(node, ast.Tuple | ast.List):
        names = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        return names if len(names) == len(node.elts) else None
    return None
