"""Find the expressions of a Python test that do not depend on the product.

Such an expression has the same value for any work, so it can be recorded once and withheld. The analysis is
conservative: it treats unknown expressions as dependent.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sandbox.grading.observations.python_tests.pure_functions import USABLE, is_pure_function
from sandbox.grading.observations.python_tests.trees import walk

Function = ast.FunctionDef | ast.AsyncFunctionDef
PURE_BUILTINS = frozenset(
    {"abs", "bool", "bytes", "bytearray", "chr", "complex", "dict", "divmod", "enumerate", "float", "frozenset", "hex",
     "int", "len", "list", "max", "min", "ord", "pow", "range", "repr", "reversed", "round", "set", "sorted", "str",
     "sum", "tuple", "zip", "True", "False", "None"}
)  # fmt: skip
FROZEN_CLASSES = frozenset({"Path", "PurePath", "PurePosixPath", "Decimal", "Fraction", "date", "timedelta"})
IMPURE_MODULES = frozenset(
    {"os", "time", "random", "subprocess", "tempfile", "io", "shutil", "sys", "unittest", "threading", "multiprocessing",
     "secrets", "uuid", "socket", "inspect", "gc", "importlib", "logging", "warnings", "contextlib", "asyncio"}
)  # fmt: skip
"""Standard library modules whose calls have effects, or another result each time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One expression that a name is bound to: the list that holds it and its place there."""

    holder: list[ast.expr]
    index: int

    @property
    def value(self) -> ast.expr:
        return self.holder[self.index]


@dataclass(slots=True)
class Binding:
    """Where a name gets its values. `cells` None: from somewhere that is not looked into."""

    cells: list[Cell] | None = field(default_factory=list)
    assigns: list[ast.Assign | ast.AnnAssign] = field(default_factory=list)

    @property
    def values(self) -> list[ast.expr]:
        return [cell.value for cell in self.cells or ()] + [a.value for a in self.assigns if a.value is not None]


class Names:
    """The names of a module or function, and which of them are pure."""

    def __init__(self, outer: Names | None = None) -> None:
        self.outer = outer
        self.bindings: dict[str, Binding] = {}
        self.escaping: set[str] = set()
        self._asked: dict[str, bool] = {}

    def is_pure(self, name: str) -> bool:
        """Whether every value that `name` is bound to is known before the product runs, and stays as it is."""
        binding = self.bindings.get(name)
        if binding is None:
            return self.outer.is_pure(name) if self.outer is not None else name in PURE_BUILTINS or name == "__file__"
        if name not in self._asked:
            self._asked[name] = False  # a name that depends on itself
            self._asked[name] = self._decide(name, binding)
        return self._asked[name]

    def _decide(self, name: str, binding: Binding) -> bool:
        if binding.cells is None:
            return False
        values = binding.values
        if not values or not all(self.is_pure_expression(value) for value in values):
            return False
        return name not in self.escaping or all(is_immutable(value) for value in values)

    def is_constant(self, node: ast.AST) -> bool:
        """Whether a pure expression calls nothing, and what its names are bound to calls nothing."""
        for part in walk(node):
            if isinstance(part, ast.Call):
                return False
            binding = self.binding_of(part.id) if isinstance(part, ast.Name) else None
            if binding is not None and not all(self.is_constant(value) for value in binding.values):
                return False
        return True

    def is_pure_expression(self, node: ast.AST, bound: frozenset[str] = frozenset()) -> bool:
        def pure(part: ast.AST | None) -> bool:
            return part is None or self.is_pure_expression(part, bound)

        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return name in bound or self.is_pure(name)
            case (
                ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.UnaryOp() | ast.BinOp() | ast.Compare()
                | ast.BoolOp() | ast.IfExp() | ast.Subscript() | ast.Slice() | ast.JoinedStr() | ast.FormattedValue()
                | ast.Starred()
            ):  # fmt: skip
                return all(pure(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._is_pure_comprehension(node, bound)
            case ast.Call(func=func, args=args, keywords=keywords):
                known = self._is_pure_function(func, bound)
                return known and all(map(pure, args)) and all(pure(word.value) for word in keywords)
            case ast.Attribute(value=value):
                return self._is_standard(node) or pure(value)
        return False

    def _is_pure_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, bound: frozenset[str]
    ) -> bool:
        for part in node.generators:
            if part.is_async or not self.is_pure_expression(part.iter, bound):
                return False
            bound |= {n.id for n in walk(part.target) if isinstance(n, ast.Name)}
            if not all(self.is_pure_expression(test, bound) for test in part.ifs):
                return False
        made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        return all(self.is_pure_expression(part, bound) for part in made)

    def _is_pure_function(self, func: ast.expr, bound: frozenset[str]) -> bool:
        if isinstance(func, ast.Name):
            binding = self.binding_of(func.id)
            if binding is not None:
                return self.module.is_helper(func.id, binding)
            return func.id in PURE_BUILTINS or self._is_standard(func)
        if isinstance(func, ast.Attribute):
            return self._is_standard(func) or self.is_pure_expression(func.value, bound)
        return False

    def _is_standard(self, node: ast.expr) -> bool:
        """Something that was imported from a standard library module without effects."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        scope: Names | None = self
        while scope is not None:
            if node.id in scope.bindings:
                return False
            if isinstance(scope, Module):
                return node.id in scope.standard
            scope = scope.outer
        return False

    @property
    def module(self) -> Names:
        """The outermost scope."""
        return self if self.outer is None else self.outer.module

    def is_helper(self, name: str, binding: Binding) -> bool:
        """Whether `binding` is that of a function of the file that computes the same for any work."""
        return False

    def binding_of(self, name: str) -> Binding | None:
        scope: Names | None = self
        while scope is not None:
            if name in scope.bindings:
                return scope.bindings[name]
            scope = scope.outer
        return None

    def bind(self, target: ast.expr, cells: list[Cell] | None) -> None:
        """Bind what a target names to `cells`, or to the unknown."""
        match target:
            case ast.Name(id=name):
                binding = self.bindings.setdefault(name, Binding())
                if cells is None or binding.cells is None:
                    binding.cells = None
                else:
                    binding.cells += cells
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for index, part in enumerate(targets):
                    self.bind(part, _column(cells, index, len(targets)))
            case ast.Starred(value=value):
                self.bind(value, None)


def _column(cells: list[Cell] | None, index: int, count: int) -> list[Cell] | None:
    """One column of rows that are written out; None when some row is not."""
    if cells is None:
        return None
    found = []
    for cell in cells:
        row = cell.value
        if not isinstance(row, ast.Tuple | ast.List) or len(row.elts) != count:
            return None
        if any(isinstance(part, ast.Starred) for part in row.elts):
            return None
        found.append(Cell(row.elts, index))
    return found


class Module(Names):
    """The top level of a test file."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__()
        self.standard: set[str] = set()
        for statement in tree.body:
            _bind_statement(self, statement)
        self.helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        """Functions that are no test and have one definition; `is_helper` says which compute expectations."""
        bound = [node.name for node in walk(tree) if isinstance(node, Function | ast.ClassDef)]
        bound += [node.id for node in walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        for name in list(self.helpers):
            if name.startswith("test") or bound.count(name) > 1:
                del self.helpers[name]
        self._helping: dict[str, bool] = {}
        functions = [node for node in walk(tree) if isinstance(node, Function | ast.Lambda)]
        for function in functions:
            self.escaping |= escaping(function)
        for node in walk(tree):
            if isinstance(node, ast.Global):
                for name in node.names:
                    self.bindings[name] = Binding(cells=None)

    def is_helper(self, name: str, binding: Binding) -> bool:
        if name not in self.helpers or binding is not self.bindings.get(name):
            return False
        if name not in self._helping:
            self._helping[name] = True  # one that calls itself
            self._helping[name] = is_pure_function(self.helpers[name], self._is_usable)
        return self._helping[name]

    def _is_usable(self, name: str) -> bool:
        """What a helper may name."""
        binding = self.bindings.get(name)
        if binding is None:
            return name in self.standard or name in USABLE or self.is_pure(name)
        return self.is_pure(name) or self.is_helper(name, binding)


class Local(Names):
    """A function of a test file. `columns` are its parameters that are given by written-out tables."""

    def __init__(self, function: Function, module: Module, columns: dict[str, list[Cell] | None]) -> None:
        super().__init__(module)
        arguments = function.args
        for argument in (
            *arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs,
            *(a for a in (arguments.vararg, arguments.kwarg) if a is not None),
        ):  # fmt: skip
            self.bind(ast.Name(argument.arg), columns.get(argument.arg))
        attributes = {id(node) for kind in walk(function) if isinstance(kind, ast.ClassDef) for node in kind.body}
        for node in walk(function):
            if node is function:
                continue
            if isinstance(node, Function | ast.ClassDef):
                self.bindings[node.name] = Binding(cells=None)
            if id(node) in attributes and not isinstance(
                node, Function | ast.ClassDef
            ):  # whoever has the class reads them, the product too
                for part in walk(node):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        self.bindings[part.id] = Binding(cells=None)
                continue
            if isinstance(node, ast.Nonlocal | ast.Global):
                for name in node.names:
                    self.bindings[name] = Binding(cells=None)
            own = arguments.args + arguments.posonlyargs + arguments.kwonlyargs
            if isinstance(node, ast.arg) and node not in own:  # of functions within, which may hide a name
                self.bind(ast.Name(node.arg), None)
            if isinstance(node, ast.stmt):
                _bind_statement(self, node)
            if isinstance(node, ast.NamedExpr):
                self.bind(node.target, None)
            if isinstance(node, ast.ExceptHandler) and node.name:
                self.bind(ast.Name(node.name), None)
        self.escaping = escaping(function)


def _bind_statement(names: Names, node: ast.stmt) -> None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            binding = names.bindings.setdefault(name, Binding())
            if node.value is not None:
                binding.assigns.append(node)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                wrapped: list[ast.expr] = [value]
                names.bind(target, [Cell(wrapped, 0)] if len(targets) == 1 else None)
        case ast.AugAssign(target=target):
            names.bind(target, None)
        case ast.For(target=target, iter=ast.List(elts=rows) | ast.Tuple(elts=rows)):
            names.bind(target, [Cell(rows, index) for index in range(len(rows))])
        case ast.For(target=target) | ast.AsyncFor(target=target):
            pure_range = isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range"
            names.bind(target, [Cell([node.iter], 0)] if pure_range and isinstance(target, ast.Name) else None)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    names.bind(item.optional_vars, None)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            names.bindings[node.name] = Binding(cells=None)
        case ast.Import(names=aliases):
            for alias in aliases:
                _bind_import(names, (alias.asname or alias.name).partition(".")[0], alias.name)
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                _bind_import(names, alias.asname or alias.name, "" if level else module or "")
        case ast.If() | ast.Try() | ast.While() if isinstance(names, Module):
            for child in walk(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    names.bind(ast.Name(child.id), None)
                elif isinstance(child, Function | ast.ClassDef):
                    names.bindings[child.name] = Binding(cells=None)
                elif isinstance(child, ast.Import | ast.ImportFrom):
                    for alias in child.names:
                        names.bindings[(alias.asname or alias.name).partition(".")[0]] = Binding(cells=None)


def _bind_import(names: Names, name: str, module: str) -> None:
    top = module.partition(".")[0]
    if isinstance(names, Module) and top in sys.stdlib_module_names and top not in IMPURE_MODULES:
        names.standard.add(name)
    else:
        names.bindings[name] = Binding(cells=None)


def is_immutable(node: ast.AST) -> bool:
    """Whether an expression surely makes a value that nobody can change."""
    match node:
        case ast.Constant() | ast.JoinedStr():
            return True
        case ast.Tuple() | ast.UnaryOp() | ast.BinOp() | ast.Compare():
            return all(is_immutable(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        case ast.Call(func=ast.Name(id=name)):
            return name in {"str", "int", "float", "bool", "bytes", "frozenset", "range", "len", "repr", "round"}
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in FROZEN_CLASSES:
            return True
        case ast.Call(func=ast.Attribute(value=value)):
            return is_immutable(value) and not isinstance(value, ast.Tuple)
        case ast.Attribute(value=value):
            return is_immutable(value)
    return False


def escaping(function: ast.AST) -> set[str]:
    """Names that a call, an assignment or a loop of this function gets hold of, so that what they name may be changed."""
    found: set[str] = set()
    for node in walk(function):
        parts: Iterable[ast.AST] = ()
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                shielded = isinstance(func, ast.Name) and func.id in PURE_BUILTINS | {"isinstance"}
                asserts = isinstance(func, ast.Attribute) and func.attr.startswith("assert")
                if not shielded and not asserts:
                    parts = (*args, *(word.value for word in keywords), func)
            case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.Return(value=value) if value is not None:
                parts = (value,)
            case ast.Yield(value=value) | ast.Delete(targets=[value, *_]) if value is not None:
                parts = (value,)
            case ast.For(iter=iterable):
                parts = (iterable,)
            case ast.Attribute(value=value, ctx=ast.Store()) | ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                parts = (value,)
            case ast.AugAssign(target=target):
                parts = (target,)
        for part in parts:
            found |= {n.id for n in walk(part) if isinstance(n, ast.Name)}
    return found


def called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def names_in(node: ast.AST) -> Iterator[str]:
    for part in walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part.id
