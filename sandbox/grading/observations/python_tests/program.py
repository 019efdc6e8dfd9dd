"""The Python files of a suite as one program: parents of nodes, names with what they are bound to, who calls what."""

from __future__ import annotations

import ast
import builtins
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandbox.grading.observations.python_tests.origins import helper_path
from sandbox.grading.observations.python_tests.parameters import parameter_names
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.scopes import bound
from sandbox.grading.observations.python_tests.trees import walk

TEST_LIBRARIES = frozenset(
    {"pytest", "_pytest", "mock", "hypothesis", "freezegun", "time_machine", "responses", "respx", "httpretty", "requests_mock",
     "pytest_httpserver", "dirty_equals", "deepdiff", "testfixtures", "hamcrest", "assertpy", "sure", "expects", "syrupy",
     "inline_snapshot", "parameterized", "ddt", "faker", "numpy", "pandas", "polars", "requests", "httpx", "aiohttp", "docker",
     "trio", "anyio", "asgiref", "six", "attr", "attrs", "yaml", "toml", "tomli", "lxml", "bs4", "dateutil", "pytz", "pyfakefs",
     "pexpect", "ptyprocess", "packaging", "setuptools", "pkg_resources", "psutil", "regex", "nose"}
)  # fmt: skip
"""Packages that suites use beside their product. What they get is no input of the product."""
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
Key = tuple[int, str]
"""A name of a scope (by the id of its node), `.name` for an attribute of a class."""


@dataclass(frozen=True, slots=True)
class Import:
    """`module` is "" for the top of a relative import; `name` is what is imported from it, or "" for the module."""

    module: str
    name: str
    helper: str = ""
    """Path of the file of the tests that it comes from, or is."""

    @property
    def is_product(self) -> bool:
        top = self.module.partition(".")[0]
        return not self.helper and top not in TEST_LIBRARIES and top not in sys.stdlib_module_names


class Program:
    """Files of the tests, parsed: path → tree. The trees must not change while it is used."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.trees = trees
        self.parents: dict[int, ast.AST] = {}
        self.names: dict[int, set[str]] = {}
        self.imports: dict[int, dict[str, Import]] = {}
        """By the id of a module."""
        self.stars: dict[int, list[Import]] = defaultdict(list)
        self.functions: dict[Key, Function | ast.ClassDef] = {}
        self.loads: dict[Key, list[ast.expr]] = defaultdict(list)
        self.sources: dict[Key, list[ast.expr]] = defaultdict(list)
        self.fills: dict[Key, list[ast.expr]] = defaultdict(list)
        """What is put into the object that a name stands for: `seen[key] = value`, `seen.add(value)`."""
        self.attributes: dict[str, list[ast.Attribute]] = defaultdict(list)
        for tree in trees.values():
            self._declare(tree)
        for tree in trees.values():
            self._relate(tree)

    def _declare(self, tree: ast.Module) -> None:
        helpers = {path: "" for path, other in self.trees.items() if other is not tree}
        self.imports[id(tree)] = {}
        for node in walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[id(child)] = node
            if isinstance(node, SCOPES):
                self.names.setdefault(id(node), set())
        for node in walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str() as name):
                    self.names[id(self.scope(node))].add(name)
                case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                    self.names[id(self.scope(node))].add(name)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    holder = self.scope(node)
                    self.names[id(holder)].add(node.name)
                    self.functions[id(holder), node.name] = node
            if isinstance(node, Function | ast.Lambda):
                self.names[id(node)] |= set(parameters(node))
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    self._import(tree, node, alias, helpers)

    def _import(
        self, tree: ast.Module, node: ast.Import | ast.ImportFrom, alias: ast.alias, helpers: Mapping[str, str]
    ) -> None:
        name = alias.asname or alias.name.partition(".")[0]
        if isinstance(node, ast.Import):
            module, member = alias.name if alias.asname else name, ""
        else:
            module, member = node.module or "", alias.name
        if alias.name == "*":
            self.stars[id(tree)].append(Import(module, "", helper_path(module, "", helpers) or ""))
            return
        self.imports[id(tree)][name] = Import(module, member, helper_path(module, member, helpers) or "")

    def _relate(self, tree: ast.Module) -> None:
        for node in walk(tree):
            for target, value in bound(node):
                for part in walk(target):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        self.sources[id(self.scope(part)), part.id].append(value)
                    elif isinstance(part, ast.Attribute) and (class_ := self.class_of(part.value)) is not None:
                        self.sources[id(class_), "." + part.attr].append(value)
                if isinstance(target, ast.Subscript) and (key := self._holder(target.value)) is not None:
                    self.fills[key] += [target.slice, value]
            match node:
                case ast.Call(func=ast.Attribute(value=holder)) if (key := self._holder(holder)) is not None:
                    self.fills[key] += [*node.args, *(word.value for word in node.keywords)]
                case ast.Name(ctx=ast.Load()):
                    if (key := self.resolve(node)) is not None:
                        self.loads[key].append(node)
                case ast.Attribute(ctx=ast.Load()):
                    self.attributes[node.attr].append(node)
                    if (key := self.member(node)) is not None:
                        self.loads[key].append(node)

    def _holder(self, node: ast.expr) -> Key | None:
        return self.resolve(node) if isinstance(node, ast.Name) else None

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, class or module that a node stands in."""
        below, above = node, self.parents.get(id(node))
        while above is not None:
            if isinstance(above, SCOPES) and _is_inside(above, below):
                return above
            below, above = above, self.parents.get(id(above))
        return below

    def module(self, node: ast.AST) -> ast.Module:
        while not isinstance(node, ast.Module):
            node = self.parents[id(node)]
        return node

    def within(self, node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> ast.AST | None:
        """The nearest node of these kinds around another one."""
        above = self.parents.get(id(node))
        while above is not None and not isinstance(above, kinds):
            above = self.parents.get(id(above))
        return above

    def class_of(self, node: ast.expr) -> ast.ClassDef | None:
        """The class of the tests that `self`, `cls` or its own name stands for."""
        if not isinstance(node, ast.Name):
            return None
        if node.id in ("self", "cls"):
            found = self.within(node, (ast.ClassDef,))
            return found if isinstance(found, ast.ClassDef) else None
        key = self.resolve(node)
        named = self.functions.get(key) if key is not None else None
        return named if isinstance(named, ast.ClassDef) else None

    def resolve(self, node: ast.Name) -> Key | None:
        """The name of a scope that is read; None for what no file of the tests binds."""
        scope, first = self.scope(node), True
        while True:
            if (first or not isinstance(scope, ast.ClassDef)) and node.id in self.names[id(scope)]:
                return id(scope), node.id
            if isinstance(scope, ast.Module):
                break
            scope, first = self.scope(scope), False
        found = self.imports[id(scope)].get(node.id)
        if found is not None and found.helper and found.name:
            other = self.trees[found.helper]
            if found.name in self.names[id(other)]:
                return id(other), found.name
        return None

    def imported(self, node: ast.expr) -> Import | None:
        """The import that a name stands for, where nothing nearer has it."""
        if not isinstance(node, ast.Name) or self.resolve(node) is not None:
            return None
        here = self.imports[id(self.module(node))]
        if node.id in here or hasattr(builtins, node.id) or node.id.startswith("_oc_"):
            return here.get(node.id)
        stars = [found for found in self.stars[id(self.module(node))] if not found.is_product]
        return None if stars else Import("", node.id)  # what `from product import *` brings

    def member(self, node: ast.Attribute) -> Key | None:
        """`self.attr`, `Class.attr` and `helper.name` as a key."""
        class_ = self.class_of(node.value)
        if class_ is not None:
            own = (id(class_), node.attr)
            return own if node.attr in self.names[id(class_)] else (id(class_), "." + node.attr)
        found = self.imported(node.value)
        if found is not None and found.helper:
            other = self.trees[found.helper]
            return (id(other), node.attr) if node.attr in self.names[id(other)] else None
        return None

    def callee(self, call: ast.Call) -> Function | ast.ClassDef | ast.Lambda | None:
        """The function or class of the tests that is called."""
        key = None
        if isinstance(call.func, ast.Name):
            key = self.resolve(call.func)
        elif isinstance(call.func, ast.Attribute):
            key = self.member(call.func)
        if key is None:
            return None
        found = self.functions.get(key)
        sources = self.sources[key]
        if found is None and len(sources) == 1 and isinstance(sources[0], ast.Lambda):
            return sources[0]
        return found

    def fixtures(self, name: str) -> Iterator[Function]:
        """Functions that pytest calls for an argument of this name."""
        for (_, own), node in self.functions.items():
            if own == name and isinstance(node, Function) and is_fixture(node):
                yield node

    def takers(self, name: str) -> Iterator[Function]:
        """Tests and fixtures with an argument of this name."""
        for node in self.functions.values():
            if isinstance(node, Function) and is_called_by_pytest(node) and name in parameters(node):
                yield node


def _is_inside(scope: ast.AST, below: ast.AST) -> bool:
    """Whether a child of a scope is evaluated within it: decorators, defaults and bases are not."""
    if isinstance(scope, Function | ast.ClassDef):
        return below in scope.body
    return not isinstance(scope, ast.Lambda) or below is scope.body


def parameters(node: Function | ast.Lambda) -> list[str]:
    given = node.args
    extra = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    return [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)]


def is_fixture(node: Function) -> bool:
    names = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any((d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "")) == "fixture" for d in names)


def is_called_by_pytest(node: Function) -> bool:
    return node.name.lower().startswith("test") or is_fixture(node)


def rows_of(function: Function) -> Iterator[tuple[list[str], ast.expr]]:
    """Names and table of each `parametrize`."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and called(decorator) == "parametrize" and len(decorator.args) >= 2:
            yield parameter_names(decorator.args[0]) or [], decorator.args[1]
