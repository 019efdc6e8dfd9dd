"""The names of a function or module of a Python test, with the expressions that they are bound to."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sandbox.grading.observations.python_tests.parameters import parameter_names
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.trees import walk


@dataclass(slots=True)
class Scope:
    """A function or module with the expressions that its names are bound to."""

    node: ast.Module | Function
    outer: Scope | None = None
    class_: ast.ClassDef | None = None
    sources: dict[str, list[ast.expr]] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    """Names that a call gets as arguments."""


def scope_of(
    node: ast.Module | Function, outer: Scope | None, class_: ast.ClassDef | None, standard: Collection[str]
) -> Scope:
    scope = Scope(node, outer, class_)
    statements = list(_module_level(node)) if isinstance(node, ast.Module) else list(walk(node))
    for target, value in (pair for statement in statements for pair in bound(statement)):
        for part in walk(target):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                scope.sources.setdefault(part.id, []).append(value)
    if not isinstance(node, ast.Module):
        for names, table in _tables(node):
            for name in names:
                scope.sources.setdefault(name, []).append(table)
        scope.parameters = frozenset(arguments_of(node)) - scope.sources.keys()
        scope.passed = frozenset(_passed(node, standard))
    return scope


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    for statement in tree.body:
        if not isinstance(statement, Function | ast.ClassDef):
            yield from walk(statement)


def bound(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield target, value
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield target, value
        case ast.comprehension(target=target, iter=value):
            yield target, value
        case ast.withitem(context_expr=value, optional_vars=target) if target is not None:
            yield target, value
        case ast.ExceptHandler(name=name) if name:
            yield ast.Name(name, ast.Store()), ast.Name("?", ast.Load())


def _tables(function: Function) -> Iterator[tuple[list[str], ast.expr]]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and called(decorator) == "parametrize" and len(decorator.args) >= 2:
            yield parameter_names(decorator.args[0]) or [], decorator.args[1]


def arguments_of(function: Function) -> list[str]:
    given = function.args
    extra = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    return [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)]


def _passed(function: Function, standard: Collection[str]) -> Iterator[str]:
    for node in walk(function):
        if isinstance(node, ast.Call) and not _is_of(node.func, standard):
            name = called(node)
            if name.startswith("assert") or hasattr(builtins, name) or name in ("approx", "raises", "subTest"):
                continue
            if name[:1] != "_" and not name.lower().startswith(("check", "verify", "expect", "compare", "ensure")):
                for part in (*node.args, *(word.value for word in node.keywords)):
                    yield from _whole(part)


def _is_of(node: ast.expr, names: Collection[str]) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _whole(node: ast.expr) -> Iterator[str]:
    """Names that are passed as they are; of `f(case.net)` only a part of `case` is."""
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Starred(value=value):
            yield from _whole(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _whole(part)
