"""What of a Python test is the product: which calls it gets, which objects are its own, and what it may have computed."""

from __future__ import annotations

import ast
from datetime import date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from re import Match, Pattern

from sandbox.grading.observations.python_tests.demands import SEEKS, TAKES_OUT
from sandbox.grading.observations.python_tests.program import (
    Import,
    Key,
    Program,
    is_called_by_pytest,
    parameters,
    rows_of,
)
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.trees import walk

MAX_DEPTH = 6
COMPARING = ("assert", "check", "verify", "expect", "compare", "ensure", "equal", "is_equal", "same", "match", "should")
PLAIN = frozenset(
    name
    for kind in (
        str,
        bytes,
        list,
        dict,
        set,
        tuple,
        int,
        float,
        date,
        datetime,
        timedelta,
        Decimal,
        Path,
        StringIO,
        Match,
        Pattern,
    )
    for name in dir(kind)
)
"""Methods of plain values: what they get is no input of an object of the product."""
ENVIRONMENT = frozenset(
    {"setattr", "setitem", "setenv", "delenv", "delattr", "delitem", "chdir", "syspath_prepend", "patch", "object"}
)


class ProductCalls:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def takes(self, call: ast.Call) -> bool:
        """Whether a call hands its arguments to the product."""
        name, func = called(call), call.func
        if name.lower().startswith(COMPARING):
            return False
        if isinstance(func, ast.Name):
            found = self.program.imported(func)
            if (found is not None and found.is_product) or self.is_product(func):
                return True
        if isinstance(func, ast.Attribute):
            root = func.value
            if name in ENVIRONMENT and _is_patcher(root):
                return name not in ("setenv", "setitem") or not self._reads_environment(call)
            if self.is_product(root):
                return True
            plain = name in PLAIN or name in SEEKS or name in TAKES_OUT
            if not plain and self.is_computed(root):
                return True
        if name in SEEKS | TAKES_OUT:
            return False
        given = [*call.args, *(one.value for one in call.keywords)]
        if name not in ("isinstance", "issubclass", "type", "id", "hash", "print", "repr", "str") and any(
            map(self._is_code, given)
        ):
            return True
        return any(isinstance(part, ast.Attribute) and part.attr == "executable" for one in given for part in walk(one))

    def _reads_environment(self, node: ast.AST) -> bool:
        """Whether the tests look up in the environment themselves."""
        return any(
            (isinstance(part, ast.Attribute) and part.attr in ("environ", "getenv", "environb"))
            or (isinstance(part, ast.Name) and part.id in ("environ", "getenv"))
            for part in walk(self.program.module(node))
        )

    def _is_code(self, node: ast.expr) -> bool:
        """Whether an argument is a function or class of the product itself."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if isinstance(node, ast.Call) and called(node) == "partial" and node.args:
            return self._is_code(node.args[0])
        found = self.program.imported(node)
        return found is not None and found.is_product and not found.name.isupper()

    def is_product(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is a module, class or function of the product, or an object made of such a class."""
        if depth > MAX_DEPTH:
            return False
        match node:
            case ast.Name():
                found = self.program.imported(node)
                if found is not None:
                    return found.is_product and (not found.name or not found.name.isupper())
                key = self.program.resolve(node)
                return key is not None and self._are_product(key, depth)
            case ast.Attribute(value=value):
                key = self.program.member(node)
                if key is not None and self._are_product(key, depth):
                    return True
                return self.is_product(value, depth + 1) and _module_like(self.program.imported(value), node.attr)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return bool(items) and all(self.is_product(item, depth + 1) for item in items)
            case ast.Call(args=[function, *_]) if called(node) == "partial":
                return self.is_product(function, depth + 1)
            case ast.Call(func=func):
                name = called(node)
                return name[:1].isupper() and not name.isupper() and self.is_product(func, depth + 1)
            case ast.Await(value=value):
                return self.is_product(value, depth + 1)
        return False

    def _are_product(self, key: Key, depth: int) -> bool:
        sources = self.program.sources[key]
        found = self.program.functions.get(key)
        if isinstance(found, ast.ClassDef):
            return any(self.is_product(base, depth + 1) for base in found.bases)
        owner = next((one for one in self.program.functions.values() if id(one) == key[0]), None)
        tables = [table for names, table in rows_of(owner) if names == [key[1]]] if isinstance(owner, Function) else []
        if tables:
            return all(self.is_product(table, depth + 1) for table in tables)
        if not sources and key[1] in self.program.names.get(key[0], ()):
            made = [value for one in self.program.fixtures(key[1]) for value in results(one)]
            taker = any(id(one) == key[0] for one in self.program.takers(key[1]))
            return taker and bool(made) and all(self.is_product(value, depth + 1) for value in made)
        return bool(sources) and all(self.is_product(source, depth + 1) for source in sources)

    def is_computed_call(self, call: ast.Call) -> bool:
        """Whether a function of the product, or a method of what it computes, is called."""
        return self.is_computed(call.func)

    # --- what the product computes --------------------------------------------------------------------------------------

    def is_computed(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether the product may have a part in an expression's value. What is not known may be of the product."""
        return not self.is_own(node, depth, set())

    def is_own(self, node: ast.AST, depth: int, seen: set[Key]) -> bool:
        if depth > MAX_DEPTH * 4:
            return False
        for part in walk(node):
            if not isinstance(part, ast.Name) or not isinstance(part.ctx, ast.Load):
                continue
            found = self.program.imported(part)
            key = self.program.resolve(part)
            if found is not None and (found.is_product or found.helper):
                return False
            if (
                key is None
                and found is None
                and part.id in ("open", "input", "globals", "locals", "eval", "exec", "vars")
            ):
                return False
            if key is not None and key not in seen:
                seen.add(key)
                if not self._is_own_name(key, depth + 1, seen):
                    return False
        return True

    def _is_own_name(self, key: Key, depth: int, seen: set[Key]) -> bool:
        function = self.program.functions.get(key)
        if function is not None:
            names = {id(one) for one in walk(function)}
            return self.is_own(function, depth, seen) if names else False
        if not all(self.is_own(source, depth, seen) for source in self.program.fills[key]):
            return False
        sources = self.program.sources[key]
        if sources:
            return all(self.is_own(source, depth, seen) for source in sources)
        owner = next((one for one in self.program.functions.values() if id(one) == key[0]), None)
        if isinstance(owner, Function) and key[1] in parameters(owner):
            if any(key[1] in names for names, _ in rows_of(owner)):
                return all(self.is_own(table, depth, seen) for names, table in rows_of(owner) if key[1] in names)
            if is_called_by_pytest(owner):
                made = [value for one in self.program.fixtures(key[1]) for value in results(one)]
                return bool(made) and all(self.is_own(value, depth, seen) for value in made)
            return self._is_given_own(owner, key[1], depth, seen)
        return False

    def _is_given_own(self, owner: Function, name: str, depth: int, seen: set[Key]) -> bool:
        """Whether every call of a function of the tests gives it a value of their own."""
        if isinstance(self.program.scope(owner), ast.ClassDef):
            return False
        loads = self.program.loads[id(self.program.scope(owner)), owner.name]
        calls = [self.program.parents.get(id(load)) for load in loads]
        if not calls or not all(
            isinstance(call, ast.Call) and call.func is load for call, load in zip(calls, loads, strict=True)
        ):
            return False
        return all(
            self.is_own(one, depth, seen)
            for call in calls
            if isinstance(call, ast.Call)
            for one in (*call.args, *call.keywords)
        )


def results(function: Function) -> list[ast.expr]:
    found = [one.value for one in walk(function) if isinstance(one, ast.Return | ast.Yield) and one.value is not None]
    return found


def _module_like(found: Import | None, attr: str) -> bool:
    """Whether `value.attr` is code of a module or class of the product, and not a method of one of its plain values."""
    if found is None:
        return attr not in PLAIN
    return not found.name or found.name[:1].isupper() or attr not in PLAIN


def _is_patcher(node: ast.expr) -> bool:
    """Whether it is `monkeypatch`, `mocker`, `mock` or `unittest.mock`, which change what the product finds."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("monkeypatch", "mocker", "mock", "unittest")
