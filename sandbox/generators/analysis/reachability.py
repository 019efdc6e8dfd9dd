"""Find the files of a package that a test refers to: they define the names it uses, via imports and re-exports.

Files that the test reaches only through other files do not count. The analysis is static: it ignores names that come
from anything but definitions and imports.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from sandbox.generators.analysis.package import Definition, Function, Package, module_of
from sandbox.generators.analysis.targets import Target

MAX_STEPS = 12
"""Maximum number of re-exports to follow."""
MAX_SHARE = 0.5
"""A file that more than this share of the tests refers to is ignored as a lead."""


@dataclass(slots=True)
class Names:
    """Names bound at the top level of a file."""

    here: dict[str, ast.stmt] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name → (module, name in it); an empty name stands for the module itself."""
    stars: list[str] = field(default_factory=list)


class Reachability:
    """Cached reachability over one package. `tests` are its test ids; files that most of them refer to are no leads."""

    def __init__(self, package: Package, tests: Iterable[str] = ()) -> None:
        self._package = package
        self._tests = frozenset(map(_place, tests))
        self._modules = {module_of(path, package.roots): path for path in package.trees}
        # Tests that lie beside their package are imported by their place in the checkout as well.
        self._modules |= {module_of(path, (".",)): path for path in package.tests}
        self._names: dict[str, Names] = {}
        self._busy: set[tuple[str, str]] = set()
        self._known: dict[tuple[str, tuple[str, ...]], tuple[frozenset[str], str]] = {}

    def distant(self, target: Target) -> tuple[str, ...]:
        """Tests that enter the target but name neither it, nor its class, nor anything else that its file defines.

        When most tests of a package refer to one file (a single entry point, say), only the other files that a test
        names count as leads. If the test names no other file, that file counts.
        """
        words = [word for word in target.name.split(".") if not word.startswith("__")]
        named = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words))
        found = []
        for test_id in target.tests:
            files, text = self._told(*_place(test_id))
            led = files - self._everywhere or files
            if led and target.path not in led and not (words and named.search(text)):
                found.append(test_id)
        return tuple(found)

    @cached_property
    def _everywhere(self) -> frozenset[str]:
        """Files that more than MAX_SHARE of the tests speak of."""
        counts = Counter(path for place in self._tests for path in self.spoken(*place))
        return frozenset(path for path, count in counts.items() if count > MAX_SHARE * len(self._tests))

    def spoken(self, path: str, where: tuple[str, ...]) -> frozenset[str]:
        """Files of the product that define what a test names; none for a test that is not found."""
        return self._told(path, where)[0]

    def _told(self, path: str, where: tuple[str, ...]) -> tuple[frozenset[str], str]:
        """Files that the test refers to, and its source text."""
        if (path, where) not in self._known:
            tree = self._package.trees.get(path)
            nodes = list(_with_class(tree.body, where)) if tree is not None else []
            files = self._files(path, nodes, set()) & self._package.product.keys()
            text = ast.unparse(nodes[0]) if nodes else ""
            self._known[path, where] = frozenset(files), text
        return self._known[path, where]

    def _files(self, path: str, nodes: Iterable[ast.AST], seen: set[tuple[str, str]]) -> set[str]:
        """Files of the names reachable from these nodes, directly or through definitions in the same file."""
        names = self._of(path)
        found: set[str] = set()
        for node in nodes:
            inner = Names()
            _collect(ast.walk(node), inner, self._module(path))
            for chain in _chains(node):
                first = chain[0]
                if first in inner.imported:
                    found |= self._follow(*inner.imported[first], chain[1:])
                elif first in names.here and (path, first) not in seen and path in self._package.tests:
                    seen.add((path, first))
                    found |= self._files(path, [names.here[first]], seen)
                elif first in names.imported:
                    found |= self._follow(*names.imported[first], chain[1:])
                elif first not in names.here:
                    for star in names.stars:
                        found |= self._resolve(star, first)
                    found |= self._fixture(path, first, seen)
        return found

    def _fixture(self, path: str, name: str, seen: set[tuple[str, str]]) -> set[str]:
        """Files that the fixture of that name in the nearest `conftest.py` refers to."""
        for folder in PurePosixPath(path).parents:
            conftest = (folder / "conftest.py").as_posix()
            if conftest in self._package.trees and (node := self._of(conftest).here.get(name)) is not None:
                if (conftest, name) in seen:
                    return set()
                seen.add((conftest, name))
                return self._files(conftest, [node], seen)
        return set()

    def _follow(self, module: str, name: str, attributes: list[str]) -> set[str]:
        """Files behind an imported name and the attributes read from it."""
        if name:
            inner = f"{module}.{name}" if module else name
            if inner not in self._modules:
                return self._resolve(module, name)
            module = inner
        for attribute in attributes:
            if f"{module}.{attribute}" not in self._modules:
                return self._resolve(module, attribute)
            module = f"{module}.{attribute}"
        return {self._modules[module]} if module in self._modules else set()

    def _resolve(self, module: str, name: str, steps: int = 0) -> set[str]:
        path = self._modules.get(module)
        if path is None or steps > MAX_STEPS:
            return set()
        names = self._of(path)
        if name in names.here:
            return {path} if path in self._package.product else self._helper(path, name)
        if name in names.imported:
            source, inner = names.imported[name]
            whole = f"{source}.{inner}".rstrip(".")
            return {self._modules[whole]} if whole in self._modules else self._resolve(source, inner, steps + 1)
        if f"{module}.{name}" in self._modules:
            return {self._modules[f"{module}.{name}"]}
        return set().union(*(self._resolve(star, name, steps + 1) for star in names.stars))

    def _helper(self, path: str, name: str) -> set[str]:
        """What something that lies among the tests speaks of."""
        if (path, name) in self._busy:
            return set()
        self._busy.add((path, name))
        found = self._files(path, [self._of(path).here[name]], set())
        self._busy.discard((path, name))
        return found

    def _of(self, path: str) -> Names:
        if path not in self._names:
            self._names[path] = Names()
            _collect(_top(self._package.trees[path].body), self._names[path], self._module(path))
        return self._names[path]

    def _module(self, path: str) -> list[str]:
        """The dotted name of the package that relative imports of a file start from."""
        parts = module_of(path, self._package.roots).split(".")
        return parts if path.endswith("/__init__.py") else parts[:-1]


def _place(test_id: str) -> tuple[str, tuple[str, ...]]:
    """(file, qualified name) of a test, without its case."""
    path, *where = test_id.split("[", 1)[0].split("::")
    return path, tuple(where)


def _with_class(body: list[ast.stmt], where: tuple[str, ...]) -> Iterator[ast.AST]:
    """A test function, and what its class has besides tests: set-up, helpers, bases."""
    for node in body:
        if isinstance(node, Function) and where == (node.name,):
            yield node
        elif isinstance(node, ast.ClassDef) and where and node.name == where[0]:
            inner = list(_with_class(node.body, where[1:]))
            if inner:
                yield from inner
                yield from (n for n in node.body if not isinstance(n, Definition) or not n.name.startswith("test"))
                yield from (*node.bases, *node.decorator_list)


def _top(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module's own level, those under conditions as well."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _top(n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt))
            if isinstance(node, ast.Try):
                yield from _top(n for handler in node.handlers for n in handler.body)


def _collect(nodes: Iterable[ast.AST], names: Names, package: list[str]) -> None:
    for node in nodes:
        if isinstance(node, Definition):
            names.here.setdefault(node.name, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                        names.here.setdefault(one.id, node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names.imported[alias.asname or first] = (alias.name if alias.asname else first, "")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                if alias.name == "*":
                    names.stars.append(module)
                else:
                    names.imported[alias.asname or alias.name] = (module, alias.name)


def _chains(node: ast.AST) -> Iterator[list[str]]:
    """Names that code reads, with the attributes read of them; parameters too, as they name fixtures."""
    inside: set[int] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.arg):
            yield [one.arg]
        if not isinstance(one, ast.Attribute | ast.Name) or id(one) in inside:
            continue
        attributes: list[str] = []
        top: ast.expr = one
        while isinstance(top, ast.Attribute):
            attributes.append(top.attr)
            top = top.value
            inside.add(id(top))
        if isinstance(top, ast.Name):
            yield [top.id, *reversed(attributes)]
