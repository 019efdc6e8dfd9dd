"""Names that only their Python test module uses: helpers, constants, fixtures, parameters, classes of tests.

A name is the module's own where each of its occurrences in the text is known to mean what the module binds it to. Attributes of
other objects, keywords of other functions, texts, builtins, fixtures and hooks of others are not, so a word that is also one of
these stays.
"""

from __future__ import annotations

import ast
import builtins
import re
import unittest
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sandbox.grading.observations.python_tests.parameters import parameter_names
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.trees import cloned, walk

WORD = re.compile(r"[^\W\d]\w*")
LOOKS_UP = frozenset(
    {"locals", "vars", "dir", "globals", "eval", "exec", "compile", "_getframe", "currentframe", "stack"}
)
HOOKS = ("test", "pytest", "setup", "teardown", "load_tests", "__")
"""How names begin, in lower case, that a framework looks up."""
PLUGIN_FIXTURES = frozenset({"event_loop", "anyio_backend", "app", "client", "live_server", "celery_config"})
"""Fixtures of tests that well-known plugins ask for by name."""
KNOWN_DECORATORS = frozenset({"contextmanager", "asynccontextmanager", "staticmethod", "lru_cache", "cache", "wraps"})
CASES = frozenset({"TestCase", "IsolatedAsyncioTestCase", "object"})
OF_CASES = frozenset(dir(unittest.IsolatedAsyncioTestCase))


def looks_up(tree: ast.AST) -> bool:
    """Whether something may be found by a name that is computed."""
    for node in walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in LOOKS_UP:
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in LOOKS_UP:
                if not (name == "compile" and isinstance(value, ast.Name) and value.id in ("re", "regex")):
                    return True
    return False


def own_names(tree: ast.Module, elsewhere: Collection[str]) -> list[str]:
    """Names of a module that may be replaced wherever they stand in its text, in the order in which it binds them.

    `elsewhere` are words of files beside it.
    """
    if looks_up(tree):
        return []
    bare = _without_texts(tree)
    reader = _Reader(bare)
    reader.visit(bare)
    written = Counter(WORD.findall(ast.unparse(bare)))
    return [
        name for name in reader.bound
        if name not in reader.kept and written[name] == reader.known[name] and name not in elsewhere and not _is_taken(name)
    ]  # fmt: skip


def test_classes(tree: ast.Module) -> frozenset[str]:
    """Names of a module's classes of tests."""
    return frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef) and _holds_tests(node))


def is_test(node: ast.AST) -> bool:
    return isinstance(node, Function) and node.name.lower().startswith("test")


def _holds_tests(node: ast.ClassDef) -> bool:
    return any(map(is_test, node.body))


def _is_taken(name: str) -> bool:
    return hasattr(builtins, name) or name in PLUGIN_FIXTURES or name in ("self", "cls", "_")


def _is_hook(name: str) -> bool:
    return name.lower().startswith(HOOKS)


def _without_texts(tree: ast.Module) -> ast.Module:
    """Without every text that is a statement: nobody looks a name up there."""
    made = cloned(tree)
    for node in walk(made):
        for statement in getattr(node, "body", None) or () if isinstance(node, ast.stmt | ast.Module) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                statement.value.value = ...
    return made


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


@dataclass
class _Reader(ast.NodeVisitor):
    tree: ast.Module
    bound: dict[str, None] = field(default_factory=dict)
    """Names that the module binds, anywhere."""
    known: Counter[str] = field(default_factory=Counter)
    """Occurrences that can only mean what the module binds the name to."""
    kept: set[str] = field(default_factory=set)
    """Names that something else may look up."""

    def __post_init__(self) -> None:
        functions = [node for node in walk(self.tree) if isinstance(node, Function)]
        self.fixtures = {function.name for function in functions if _is_fixture(function)}
        self.texts = _letters(
            " ".join(n.value for n in walk(self.tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
        )
        nodes = list(walk(self.tree))
        callees = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        self.handed = {
            n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in callees
        }
        """What others may call, with keywords of their own."""
        self.helpers = {f.name: _arguments(f) for f in functions if _has_known_decorators(f) and not is_test(f)}
        self.own_classes: set[str] = set()
        self.everywhere = list(_marked(self.tree.body))
        self._class: ast.ClassDef | None = None

    def _bind(self, name: str) -> None:
        self.known[name] += 1
        if _is_hook(name):
            self.kept.add(name)
        self.bound.setdefault(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.known[node.id] += 1
        else:
            self._bind(node.id)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.known.update(node.names)

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self._bind(node.rest)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and self._is_own(self._class):
            if node.attr in OF_CASES:
                self.kept.add(node.attr)
            if isinstance(node.ctx, ast.Load):
                self.known[node.attr] += 1
            else:
                self._bind(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match called(node), node.args:
            case "parametrize", [first, *_]:
                self.known.update(parameter_names(first) or ())
                for word in node.keywords:
                    if word.arg == "indirect":
                        self.known.update(parameter_names(word.value) or ())
            case "usefixtures" | "getfixturevalue", texts:
                self.known.update(t.value for t in texts if isinstance(t, ast.Constant) and isinstance(t.value, str))
        if isinstance(node.func, ast.Name):
            taken = self.helpers.get(node.func.id, ())
            self.known.update(word.arg for word in node.keywords if word.arg is not None and word.arg in taken)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.known[node.name] += 1
        self.bound.setdefault(node.name)
        if self._class is not None or not _holds_tests(node):
            self.kept.add(node.name)
        elif not node.keywords and all(self._is_case(base) for base in node.bases):
            self.own_classes.add(node.name)
        names = [part.id for child in node.body if not isinstance(child, Function) for part in walk(child)
                 if isinstance(part, ast.Name)]  # fmt: skip
        if not self._is_own(node):
            self.kept.update(names)
        self.kept.update(OF_CASES.intersection(names))
        outer, self._class = self._class, node
        self.generic_visit(node)
        self._class = outer

    def _is_case(self, base: ast.expr) -> bool:
        match base:
            case ast.Name(id=name):
                return name in CASES or name in self.own_classes
            case ast.Attribute(value=ast.Name(id="unittest"), attr=name):
                return name in CASES
        return False

    def _is_own(self, node: ast.ClassDef | None) -> bool:
        """Whether the attributes of a class are those of this module and of unittest."""
        return node is not None and node.name in self.own_classes

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name)
        injected = is_test(node) or _is_fixture(node)
        method = self._class is not None and node in self._class.body
        known = injected or _has_known_decorators(node)
        if not known or (_letters(node.name) in self.texts and not injected):
            self.kept.add(node.name)
        if method and not _is_fixture(node) and (not self._is_own(self._class) or node.name in OF_CASES):
            self.kept.add(node.name)
        given = self.fixtures | set(_marked_here(node)) | set(self.everywhere)
        if self._class is not None:
            given |= set(_marked_here(self._class))
        hooked = _arguments(node) if not known or _is_hook(node.name) or node.name in self.handed else ()
        for name in _arguments(node):
            self._bind(name)
            foreign = name not in given if injected else name in hooked or (method and not self._is_own(self._class))
            if foreign:
                self.kept.add(name)
        inside = method or self._class is None
        outer, self._class = self._class, self._class if inside else None
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.arguments):
                for part in (*child.defaults, *child.kw_defaults, *(a.annotation for a in _each(child))):
                    if part is not None:
                        self.visit(part)
            else:
                self.visit(child)
        self._class = outer

    visit_FunctionDef = _function
    visit_AsyncFunctionDef = _function

    def visit_arg(self, node: ast.arg) -> None:
        self._bind(node.arg)  # of a lambda, which others call
        self.kept.add(node.arg)


def _each(arguments: ast.arguments) -> list[ast.arg]:
    alone = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *alone]


def _arguments(function: Function) -> list[str]:
    return [one.arg for one in _each(function.args)]


def _last(decorator: ast.expr) -> str:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_fixture(function: Function) -> bool:
    return any(_last(one) in ("fixture", "yield_fixture") for one in function.decorator_list)


def _has_known_decorators(function: Function) -> bool:
    return all(_last(one) in KNOWN_DECORATORS for one in function.decorator_list) or _is_fixture(function)


def _marked_here(node: Function | ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        yield from _parametrized(decorator)


def _marked(body: Collection[ast.stmt]) -> Iterator[str]:
    """Parameters of the marks of a whole module."""
    for statement in body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets
        ):
            for node in walk(statement.value):
                yield from _parametrized(node)


def _parametrized(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and called(node) == "parametrize" and node.args:
        yield from parameter_names(node.args[0]) or ()
