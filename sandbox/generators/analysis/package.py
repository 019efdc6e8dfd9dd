"""The sources of a package, read once: product code, tests, documents, and where each name is read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sandbox.generators.building.builder import TaskBuilder

DOCUMENTS = (".md", ".rst", ".txt")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class Package:
    """Texts and trees by path below the checkout. What cannot be parsed has no tree."""

    product: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    trees: dict[str, ast.Module] = field(default_factory=dict)
    roots: tuple[str, ...] = (".",)
    """Directories of the checkout that are on the interpreter's path."""

    @classmethod
    def of(cls, builder: TaskBuilder) -> Package:
        repo = builder.store.repository(builder.built.environment.digest)
        test_files = {test_id.split("::", 1)[0] for test_id in builder.built.tests}
        found = cls(roots=builder.built.source_roots)
        for file in sorted(repo.rglob("*")):
            relative = file.relative_to(repo)
            path = relative.as_posix()
            if file.is_symlink() or not file.is_file() or path.startswith(".git/"):
                continue
            try:
                if path.endswith(".py"):
                    text = file.read_text(encoding="utf-8")
                    inside = path in test_files or {"tests", "test"} & set(relative.parts) or file.name == "conftest.py"
                    (found.tests if inside else found.product)[path] = text
                    found.trees[path] = ast.parse(text)
                elif path.endswith(DOCUMENTS):
                    found.documents[path] = file.read_text(encoding="utf-8")
            except (UnicodeDecodeError, SyntaxError, ValueError):
                continue  # nothing of it can be taken out; what it still tells is found by the leak scan
        return found

    @cached_property
    def bound(self) -> Counter[str]:
        """Name → how often the product binds it: definitions, parameters, assignments."""
        return Counter(name for path in self.product if path in self.trees for name in _binds(self.trees[path]))

    @cached_property
    def reads(self) -> dict[str, list[tuple[str, int]]]:
        """Name → (path, line) of each place in the product that reads it, as a name or an attribute."""
        found: dict[str, list[tuple[str, int]]] = {}
        for path in self.product:
            for name, line in reads_of(self.trees[path]) if path in self.trees else ():
                found.setdefault(name, []).append((path, line))
        return found


def reads_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of what code reads; imports, strings and assigned names do not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.end_lineno or node.lineno


def _binds(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def module_of(path: str, roots: Sequence[str]) -> str:
    """The dotted name of a file on the interpreter's path."""
    for root in sorted(roots, key=len, reverse=True):
        if root != "." and path.startswith(f"{root}/"):
            path = path.removeprefix(f"{root}/")
            break
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
