"""Take expectations out of Python tests: labels, docstrings, and values that nothing uses any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from sandbox.grading.observations.python_tests.origins import Origin, Origins
from sandbox.grading.observations.python_tests.purity import Binding, Cell, Function, Local, Module, called, names_in
from sandbox.grading.observations.python_tests.scopes import Scope
from sandbox.grading.observations.python_tests.trees import walk

DIRECT = (ast.Await, ast.NamedExpr)
"""What cannot move into a function of its own."""
FORBIDDEN = (ast.Yield, ast.YieldFrom)


def holds(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(part, kinds) for part in walk(node))


def drop_labels(tree: ast.Module) -> None:
    """`subTest(net=1, gross=2)` names a case for people, and often holds what is expected: nothing of it is delivered,
    and nothing of why a test is skipped."""
    for node in walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in ("skip", "skipif", "skipIf", "skipUnless", "xfail"):
            _without_reason(node)
        receiver = getattr(node.func.value, "id", "")
        if (node.func.attr == "subTest" or (node.func.attr == "test" and receiver == "subtests")) and not holds(
            node, (*DIRECT, *FORBIDDEN)
        ):
            node.args, node.keywords = [], []


def _without_reason(call: ast.Call) -> None:
    given = [*call.args[call.func.attr != "skip" :], *(word.value for word in call.keywords if word.arg == "reason")]  # type: ignore[attr-defined]  # an Attribute
    for node in given:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = "-"


def drop_ids(function: Function) -> None:
    """Ids of rows are names for people, and are often made of what is expected."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and called(decorator) == "parametrize":
            decorator.keywords = [word for word in decorator.keywords if word.arg != "ids"]
            for row in walk(decorator):
                if isinstance(row, ast.Call) and called(row) == "param":
                    row.keywords = [word for word in row.keywords if word.arg != "id"]


def strip(tree: ast.Module) -> None:
    """Remove docstrings: they tell what is expected. Where a test reads any, those of tests alone."""
    read = any(isinstance(node, ast.Attribute) and node.attr in ("__doc__", "getdoc") for node in walk(tree))
    for node in walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node, clean=False) is not None:
            if read and not isinstance(node, ast.Module) and not node.name.lower().startswith("test"):
                continue
            node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])


def blank(
    tree: ast.Module, module: Module, scopes: Sequence[tuple[Function, Local, Scope]], origins: Origins | None,
    others: Sequence[str],
) -> None:  # fmt: skip
    """Put None in place of values that nothing in the delivered file uses any more. With `origins`, objects that were expected
    go as well."""
    changed = True
    while changed:
        changed = False
        for function, local, scope in scopes:
            used = set(names_in_body(function))
            for name, binding in local.bindings.items():
                spared = (
                    origins is not None and name in scope.sources and origins.of_name(name, scope) < Origin.COMPUTED
                )
                if name not in used and (local.is_pure(name) or spared):
                    changed |= _clear(binding)
        used = set(names_in(tree))
        for name, binding in module.bindings.items():
            imported = any(name in text for text in others)
            if name not in used and not imported and module.is_pure(name) and not name.startswith(("__", "pytest")):
                changed |= _clear(binding)
        for name, function in module.helpers.items():
            imported = any(name in text for text in others)
            elsewhere = {part for node in tree.body if node is not function for part in names_in(node)}
            if name not in elsewhere and not imported and module.is_helper(name, module.bindings[name]):
                changed |= _emptied(function)


def _emptied(function: ast.FunctionDef) -> bool:
    """Take away a body: it computes what is withheld."""
    if len(function.body) == 1 and isinstance(function.body[0], ast.Pass):
        return False
    function.body = [ast.Pass()]
    return True


def names_in_body(function: Function) -> Iterator[str]:
    """Names that a function's body loads; its decorators, which hold the tables, are left out."""
    for statement in function.body:
        yield from names_in(statement)


def _clear(binding: Binding) -> bool:
    changed = False
    for cell in binding.cells or ():
        changed |= _clear_cell(cell)
    for assign in binding.assigns:
        if not (isinstance(assign.value, ast.Constant) and assign.value.value is None):
            assign.value = ast.Constant(None)
            changed = True
    return changed


def _clear_cell(cell: Cell) -> bool:
    if isinstance(cell.value, ast.Constant) and cell.value.value is None:
        return False
    if isinstance(cell.value, ast.Call) and called(cell.value) == "range":
        return False  # what a loop runs over
    cell.holder[cell.index] = ast.Constant(None)
    return True
