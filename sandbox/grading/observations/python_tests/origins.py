"""Where the value of an expression in a Python test comes from: the tests themselves, or the product.

An assertion compares what the product computes with what the test expects. Where the expectation has to stay in the sandbox,
because it is an object of the product or stands in a helper file, `Origins` tells which side it is. The answer only decides what
the first run may hold (`isolation.py`), so names that cannot be followed count as computed by the product.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePosixPath

from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.scopes import Scope, arguments_of, bound, scope_of
from sandbox.grading.observations.python_tests.trees import walk

MAX_DEPTH = 40
MAX_HELPER_BYTES = 200_000
CONTAINERS = frozenset({"list", "tuple", "set", "frozenset", "dict", "sorted"})


class Origin(IntEnum):
    """Ordered: an expression has the highest origin of its parts."""

    OWN = 0
    """The tests alone: literals, tables, helpers that use nothing of the product."""
    MADE = 1
    """An object of the product that is made of such values: `Price(119)`."""
    COMPUTED = 2
    """What the product computes, and whatever is not known."""


@dataclass(frozen=True, slots=True)
class Import:
    module: str
    name: str = ""


class Origins:
    """Of the expressions of one test file. `helpers` are the other Python files of the tests: path → text."""

    def __init__(self, tree: ast.Module, helpers: Mapping[str, str] | None = None) -> None:
        self.tree = tree
        self.helpers = helpers or {}
        self._known: dict[tuple[int, str], Origin] = {}
        self._scopes: dict[int, tuple[Scope, ast.AST]] = {}
        """By the id of a node, with the node, so that no other gets its id."""
        self.functions = {node.name: node for node in tree.body if isinstance(node, Function)}
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.imports = dict(_imports(tree))
        self.standard = frozenset(name for name, found in self.imports.items() if _is_standard(found.module))
        """Names of the standard library that the file imports."""
        self.module = self._scope_of(tree, None, None)
        self._files: dict[str, Origins | None] = {}

    def scope(self, function: Function, class_: ast.ClassDef | None = None) -> Scope:
        return self._scope_of(function, self.module, class_)

    def _scope_of(
        self, node: ast.Module | Function, outer: Scope | None, class_: ast.ClassDef | None, called_by: bool = False
    ) -> Scope:
        """`called_by`: as its caller in the tests sees a function, whose arguments it looks at itself."""
        kept = self._scopes.get(id(node) * 2 + called_by)
        if kept is not None:
            return kept[0]
        scope = scope_of(node, outer, class_, self.standard)
        if called_by and not isinstance(node, ast.Module):
            scope.parameters = frozenset()
            for argument in arguments_of(node):
                scope.sources.setdefault(argument, [ast.Constant(None)])
        self._scopes[id(node) * 2 + called_by] = (scope, node)
        return scope

    def of(self, node: ast.AST, scope: Scope, depth: int = 0) -> Origin:
        """The origin of an expression."""
        if depth > MAX_DEPTH:
            return Origin.COMPUTED
        match node:
            case ast.Constant():
                return Origin.OWN
            case ast.Name(id=name):
                return self.of_name(name, scope, depth)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr):
                return self._of_attribute(attr, scope, depth)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if (file := self._file_of(name)) is not None:
                return file.of_name(attr, file.module, depth + 1)
            case ast.Attribute(value=value):
                return _used(self.of(value, scope, depth + 1))
            case ast.Call():
                return self._of_call(node, scope, depth)
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.IfExp() | ast.Starred() | ast.keyword():
                return self._highest(ast.iter_child_nodes(node), scope, depth)
            case ast.comprehension(iter=value):
                return self.of(value, scope, depth + 1)
        return _used(self._highest(ast.iter_child_nodes(node), scope, depth))

    def of_name(self, name: str, scope: Scope, depth: int = 0) -> Origin:
        key = (id(scope), name)
        if key not in self._known:
            self._known[key] = Origin.OWN  # a name that depends on itself
            self._known[key] = self._of_name(name, scope, depth + 1)
        return self._known[key]

    def _of_name(self, name: str, scope: Scope, depth: int) -> Origin:
        if name in scope.passed and (name in scope.sources or name in scope.parameters):
            return Origin.COMPUTED  # an input, which the product may change
        if name in scope.sources:
            return self._highest(scope.sources[name], scope, depth)
        if name in scope.parameters:
            return self._of_fixture(name, depth) if _is_given_fixtures(scope.node) else Origin.OWN  # its caller's
        if scope.outer is not None:
            return self.of_name(name, scope.outer, depth)
        if name in self.imports:
            file = self._file_of(name)
            if file is not None:
                return file.of_name(self.imports[name].name, file.module, depth)
            return Origin.OWN if _is_standard(self.imports[name].module) else Origin.COMPUTED
        if name in self.functions:
            return self._of_function(self.functions[name], scope, depth)
        if name in self.classes:
            return self._of_class(self.classes[name], depth)
        return Origin.OWN if hasattr(builtins, name) else Origin.COMPUTED

    def _of_class(self, class_: ast.ClassDef, depth: int) -> Origin:
        """A class of the tests: their own where nothing in it names the product."""
        key = (id(class_), "")
        if key in self._known:
            return self._known[key]
        self._known[key] = Origin.OWN
        names = {node.id for node in walk(class_) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        outside = [
            name for name in names if name in self.imports or name in self.module.sources or name in self.classes
        ]
        self._known[key] = _used(max((self.of_name(name, self.module, depth) for name in outside), default=Origin.OWN))
        return self._known[key]

    def _of_call(self, call: ast.Call, scope: Scope, depth: int) -> Origin:
        given = self._highest([*call.args, *call.keywords], scope, depth)
        match call.func:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                method = _method(scope.class_, attr)
                return max(given, Origin.COMPUTED if method is None else self._of_function(method, scope, depth))
            case ast.Name(id=name) if self._is_builtin(name, scope):
                return given if name in CONTAINERS else _used(given)
            case ast.Name(id=name) if name in self.functions and name not in scope.sources:
                return max(_used(given), self._of_function(self.functions[name], scope, depth))
        callee = self.of(call.func, scope, depth + 1)
        if callee is Origin.OWN:
            return _used(given)
        if called(call)[:1].isupper():
            return max(Origin.MADE, given)
        return Origin.COMPUTED

    def _of_function(self, function: Function, scope: Scope, depth: int) -> Origin:
        """What calls of a function of the tests return, whose arguments the caller looks at."""
        key = (id(function), "")
        if key in self._known:
            return self._known[key]
        self._known[key] = Origin.OWN  # one that calls itself
        inner = self._scope_of(function, self.module, scope.class_, called_by=True)
        results = [
            node.value for node in walk(function) if isinstance(node, ast.Return | ast.Yield) and node.value is not None
        ]
        self._known[key] = self._highest(results, inner, depth)
        return self._known[key]

    def _of_fixture(self, name: str, depth: int) -> Origin:
        if name in self.functions:
            return self._of_function(self.functions[name], self.module, depth)
        for path in self.helpers:
            file = self._file(path) if PurePosixPath(path).name == "conftest.py" else None
            if file is not None and name in file.functions:
                return file._of_function(file.functions[name], file.module, depth)
        return Origin.COMPUTED

    def _of_attribute(self, attr: str, scope: Scope, depth: int) -> Origin:
        """`self.attr`: what the class of the test, or a method of it, puts there."""
        if scope.class_ is None:
            return Origin.COMPUTED
        key = (id(scope.class_), "." + attr)
        if key not in self._known:
            self._known[key] = Origin.OWN  # one that depends on itself
            self._known[key] = self._of_sources(scope.class_, attr, depth)
        return self._known[key]

    def _of_sources(self, class_: ast.ClassDef, attr: str, depth: int) -> Origin:
        found = list(_attribute_sources(class_, attr))
        if not found:
            return Origin.COMPUTED
        scopes = [self.module if method is None else self._scope_of(method, self.module, class_) for method, _ in found]
        return max(self.of(value, inner, depth + 1) for inner, (_, value) in zip(scopes, found, strict=True))

    def _highest(self, nodes: Iterable[ast.AST], scope: Scope, depth: int) -> Origin:
        parts = [node for node in nodes if isinstance(node, ast.expr | ast.keyword | ast.comprehension)]
        return max((self.of(node, scope, depth + 1) for node in parts), default=Origin.OWN)

    def behind(self, node: ast.AST, scope: Scope) -> set[str]:
        """Names outside the function that an expression comes from: helpers, fixtures, `.attribute` of the test's class."""
        found: set[str] = set()
        waiting, seen = [node], set[str]()
        while waiting:
            for part in walk(waiting.pop()):
                if isinstance(part, ast.Attribute) and _is_self(part.value):
                    found.add("." + part.attr)
                elif isinstance(part, ast.Name) and part.id not in seen:
                    seen.add(part.id)
                    waiting += scope.sources.get(part.id, ())
                    given = part.id in scope.parameters and _is_given_fixtures(scope.node)
                    if given or part.id in self.functions or self._file_of(part.id) is not None:
                        found.add(part.id)
        return found - {"self", "cls"}

    def _is_builtin(self, name: str, scope: Scope) -> bool:
        return (
            hasattr(builtins, name)
            and name not in scope.sources
            and name not in self.module.sources
            and name not in self.imports
            and name not in self.functions
        )

    def _file_of(self, name: str) -> Origins | None:
        """The helper file that an imported name comes from, or is."""
        found = self.imports.get(name)
        path = None if found is None else helper_path(found.module, found.name, self.helpers)
        return None if path is None else self._file(path)

    def _file(self, path: str) -> Origins | None:
        if path not in self._files:
            self._files[path] = None  # files that import each other
            text = self.helpers[path]
            try:
                tree = ast.parse(text) if len(text) <= MAX_HELPER_BYTES else None
            except (SyntaxError, ValueError, RecursionError):
                tree = None
            if tree is not None:
                self._files[path] = Origins(tree, {other: t for other, t in self.helpers.items() if other != path})
        return self._files[path]


def helper_path(module: str, name: str, helpers: Mapping[str, str]) -> str | None:
    """The file of the tests that `from module import name` reads, by the end of its path."""
    for dotted in (module, f"{module}.{name}".strip(".")):
        tail = dotted.strip(".").replace(".", "/")
        for path in helpers:
            stem = path.removesuffix(".py").removesuffix("/__init__")
            if tail and path.endswith(".py") and (stem == tail or stem.endswith("/" + tail)):
                return path
    return None


def _used(origin: Origin) -> Origin:
    """Of something that is computed from a value: an object of the product computes it."""
    return Origin.OWN if origin is Origin.OWN else Origin.COMPUTED


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names or module.partition(".")[0] in ("pytest", "_pytest")


def _imports(tree: ast.Module) -> Iterator[tuple[str, Import]]:
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                yield name, Import(alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, Import("." * node.level + (node.module or ""), alias.name)


def _is_given_fixtures(node: ast.AST) -> bool:
    """Whether pytest calls a function: a test or a fixture."""
    if not isinstance(node, Function):
        return False
    return node.name.startswith("test") or any(
        called(d) == "fixture" or _last(d) == "fixture" for d in node.decorator_list
    )


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _method(class_: ast.ClassDef | None, name: str) -> Function | None:
    if class_ is None:
        return None
    return next((node for node in class_.body if isinstance(node, Function) and node.name == name), None)


def _attribute_sources(class_: ast.ClassDef, attr: str) -> Iterator[tuple[Function | None, ast.expr]]:
    for statement in class_.body:
        if isinstance(statement, Function):
            for node in walk(statement):
                for target, value in bound(node):
                    for part in walk(target):
                        if isinstance(part, ast.Attribute) and part.attr == attr and _is_self(part.value):
                            yield statement, value
        else:
            for target, value in bound(statement):
                if isinstance(target, ast.Name) and target.id == attr:
                    yield None, value


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
