"""Functions of a test file that compute expectations: reference implementations, and readers of the tests' own data."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

from sandbox.grading.observations.python_tests.trees import walk

USABLE = frozenset(
    {"all", "any", "filter", "isinstance", "iter", "map", "next", "open", "slice"}
    | {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)}
)  # fmt: skip
"""Built-ins that such a function may use, besides those that only compute."""
STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.For, ast.If, ast.While, ast.With, ast.Raise,
    ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
FORBIDDEN = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.Global, ast.Nonlocal)


def is_pure_function(function: ast.FunctionDef, is_known: Callable[[str], bool]) -> bool:
    """Whether a call gives the same for any work: its body uses its own names, and what `is_known` vouches for.

    It may read files: those of the tests are the same for any work, and what the work could write there is compared between
    two runs of the oracle's work. It may not set anything outside.
    """
    arguments = function.args
    if function.decorator_list or arguments.vararg or arguments.kwarg:
        return False
    own = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for node in walk(function):
        if isinstance(node, FORBIDDEN) or (
            isinstance(node, ast.stmt) and node is not function and not isinstance(node, STATEMENTS)
        ):
            return False
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        if isinstance(node, ast.arg):  # of a lambda
            own.add(node.arg)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            return False
    loaded = {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return all(name in own or is_known(name) for name in loaded)
