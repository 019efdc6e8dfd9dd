"""Find removable features: public functions, classes and methods that tests use and no other part of a package needs."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.generators.analysis.excision import qualified
from sandbox.generators.analysis.package import Definition, Function, Package
from sandbox.generators.building.builder import TaskBuilder

MAX_LINES = 200
"""Maximum lines of a feature; a larger one is a project, not a task."""


@dataclass(frozen=True, slots=True)
class Feature:
    path: str
    name: str
    """Qualified: `function`, `Class` or `Class.method`."""
    removed: frozenset[str]
    """Qualified names that go: its own and those of private helpers that only it needs."""
    tests: tuple[str, ...]
    """Stable tests that enter it."""
    description: str
    """Its signature and docstring, without code."""

    @property
    def word(self) -> str:
        """The name by which code speaks of it."""
        return self.name.rpartition(".")[2]


def find_features(builder: TaskBuilder, package: Package) -> list[Feature]:
    """In path and line order."""
    found = []
    for path in sorted(package.product):
        for name, node in _public(package.trees[path]) if path in package.trees else ():
            assert isinstance(node, Definition)
            tests = _tests_of(builder, path, node)
            if not tests or not ast.get_docstring(node) or len(_lines(node)) > MAX_LINES:
                continue
            # A method of a name that others have too is one way of doing what all of them do.
            if "." in name and package.bound[node.name] != 1:
                continue
            own = _lines(node)
            if any(not (other == path and line in own) for other, line in package.reads.get(node.name, ())):
                continue
            removed = with_helpers(package, path, name)
            found.append(Feature(path, name, frozenset(removed), tests, describe(node)))
    return found


def _public(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Those defined once, of classes the methods only."""
    found = list(qualified(tree.body))
    times = Counter(name for name, _ in found)
    for name, node in found:
        *owner, own = name.split(".")
        public = len(owner) < 2 and not any(part.startswith("_") for part in (*owner, own))
        if public and times[name] == 1 and (not owner or isinstance(node, Function)):
            yield name, node


def _lines(node: ast.stmt) -> range:
    assert node.end_lineno is not None
    return range(min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]), node.end_lineno + 1)


def _tests_of(builder: TaskBuilder, path: str, node: Definition) -> tuple[str, ...]:
    found: set[str] = set()
    for function in (n for n in ast.walk(node) if isinstance(n, Function)):
        found.update(builder.built.covered.get(f"{path}:{_lines(function)[0]}", ()))
    return tuple(sorted(found))


def with_helpers(package: Package, path: str, name: str) -> set[str]:
    """A definition's qualified name, and those of private functions and methods that only it, or what goes with it, reads."""
    nodes = dict(qualified(package.trees[path].body))
    owner = name.rpartition(".")[0]
    private = {
        other: node
        for other, node in nodes.items()
        if other.rpartition(".")[0] in ("", owner) and other.rpartition(".")[2].startswith("_") and not other.endswith("__")
    }  # fmt: skip
    removed = {name}
    while True:
        spans = [_lines(nodes[one]) for one in removed]
        more = {
            other
            for other, node in private.items()
            if other not in removed and _only(package, path, other.rpartition(".")[2], spans, _lines(node))
        }
        if not more:
            return removed
        removed |= more


def _only(package: Package, path: str, word: str, spans: list[range], own: range) -> bool:
    """Whether all reads of a name lie in `spans`, those of itself aside."""
    places = [(p, line) for p, line in package.reads.get(word, ()) if not (p == path and line in own)]
    return bool(places) and all(p == path and any(line in span for span in spans) for p, line in places)


def describe(node: Definition) -> str:
    """Signature and docstring; of a class also those of its public methods."""
    return ast.unparse(ast.fix_missing_locations(ast.Module([_bare(node)], []))).strip()


def _bare(node: ast.stmt) -> ast.stmt:
    assert isinstance(node, Definition)
    said = ast.get_docstring(node, clean=False)
    body: list[ast.stmt] = [ast.Expr(ast.Constant(said))] if said is not None else []
    if isinstance(node, ast.ClassDef):
        body += [
            _bare(inner)
            for inner in node.body
            if isinstance(inner, Function) and (not inner.name.startswith("_") or inner.name == "__init__")
        ]
        return ast.ClassDef(node.name, node.bases, node.keywords, body or [ast.Pass()], node.decorator_list)
    kind = type(node)
    return kind(node.name, node.args, body or [ast.Expr(ast.Constant(...))], node.decorator_list, node.returns)
