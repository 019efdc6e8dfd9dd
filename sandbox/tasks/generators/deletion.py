"""Feature tasks: a function or class is taken out of a package with everything that only it needs, to be written again.

The rest must stay green: the visible tests are the package's own without those of the feature, and they must pass over the
checkout that the agent gets. The feature's tests are the hidden verifier. The instruction is its signature and docstring.
"""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import libcst as cst

from sandbox.tasks.generators.drafts import Draft, Reason, Rejected
from sandbox.tasks.generators.making import Workshop, run_broken, tests_near
from sandbox.tasks.generators.pruning import remove_functions

DOCUMENTS = (".md", ".rst", ".txt")
MAX_LINES = 200
"""Of a feature: larger ones are a project, not a task."""
MAX_BESIDE = 100
"""Further tests of the same files: they fail where the feature can no longer be imported."""
MAX_ELSEWHERE = 20
"""Tests of other files that must go on passing."""
T = TypeVar("T", cst.FunctionDef, cst.ClassDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Feature:
    """A public top-level definition that stable tests use and nothing else of the package needs."""

    path: str
    name: str
    removed: frozenset[str]
    """The name and private helpers that only it needs."""
    tests: tuple[str, ...]
    """Stable tests that enter it."""
    description: str
    """Its signature and docstring, without code."""


@dataclass(slots=True)
class Package:
    """The sources of a package, parsed once."""

    product: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    trees: dict[str, ast.Module] = field(default_factory=dict)

    @classmethod
    def of(cls, shop: Workshop) -> Package:
        repo = shop.store.repository(shop.built.environment.digest)
        test_files = {test_id.split("::", 1)[0] for test_id in shop.built.tests}
        found = cls()
        for file in sorted(repo.rglob("*")):
            path = file.relative_to(repo).as_posix()
            if file.is_symlink() or not file.is_file() or path.startswith(".git/"):
                continue
            try:
                if path.endswith(".py"):
                    text = file.read_text(encoding="utf-8")
                    inside = path in test_files or {"tests", "test"} & set(file.parts) or file.name == "conftest.py"
                    (found.tests if inside else found.product)[path] = text
                    found.trees[path] = ast.parse(text)
                elif path.endswith(DOCUMENTS):
                    found.documents[path] = file.read_text(encoding="utf-8")
            except (UnicodeDecodeError, SyntaxError, ValueError):
                continue  # nothing of it can be taken out; what it still tells is found by the leak scan
        return found


def find_features(shop: Workshop, package: Package) -> list[Feature]:
    """In path and line order."""
    uses = {path: _uses(tree) for path, tree in package.trees.items() if path in package.product}
    found = []
    for path in sorted(package.product):
        if path not in package.trees:
            continue
        for node in package.trees[path].body:
            if not isinstance(node, Definition) or node.name.startswith("_") or node.end_lineno is None:
                continue
            tests = _tests_of(shop, path, node)
            if not tests or node.end_lineno - node.lineno > MAX_LINES or not ast.get_docstring(node):
                continue
            own = set(range(node.lineno, node.end_lineno + 1))
            if any(
                node.name in names and not (other == path and line in own)
                for other, lines in uses.items()
                for line, names in lines.items()
            ):
                continue
            removed = with_helpers(package.trees[path], node)
            found.append(Feature(path, node.name, frozenset(removed), tests, describe(node)))
    return found


def _tests_of(shop: Workshop, path: str, node: Definition) -> tuple[str, ...]:
    found: set[str] = set()
    functions = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        found.update(shop.built.covered.get(f"{path}:{first}", ()))
    return tuple(sorted(found))


def _uses(tree: ast.Module) -> dict[int, set[str]]:
    """Line → names that code there reads; imports and strings do not count."""
    found: dict[int, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.setdefault(node.lineno, set()).add(node.id)
        elif isinstance(node, ast.Attribute):
            found.setdefault(node.end_lineno or node.lineno, set()).add(node.attr)
    return found


def with_helpers(tree: ast.Module, node: Definition) -> set[str]:
    """The definition's name and private top-level functions that only it, or what goes with it, reads."""
    removed = {node.name}
    private = {n.name: n for n in tree.body if isinstance(n, Definition) and n.name.startswith("_") and n is not node}
    while True:
        gone = [n for n in tree.body if isinstance(n, Definition) and n.name in removed]
        inside = {name for n in gone for names in _uses(ast.Module([n], [])).values() for name in names}
        rest = [n for n in tree.body if n not in gone]
        more = {
            name
            for name, helper in private.items()
            if name in inside - removed
            and not any(name in names for n in rest if n is not helper for names in _uses(ast.Module([n], [])).values())
        }
        if not more:
            return removed
        removed |= more


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
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            and (not inner.name.startswith("_") or inner.name == "__init__")
        ]
        return ast.ClassDef(node.name, node.bases, node.keywords, body or [ast.Pass()], node.decorator_list)
    kind = type(node)
    return kind(node.name, node.args, body or [ast.Expr(ast.Constant(...))], node.decorator_list, node.returns)


class _Remover(cst.CSTTransformer):
    """Takes definitions out of a module, with imports and `__all__` entries of the feature's name."""

    def __init__(self, defined: frozenset[str], name: str) -> None:
        super().__init__()
        self._defined, self._name, self._depth = defined, name, 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self._depth += 1
        return True

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self._depth += 1
        return True

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        return self._definition(updated_node)

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef | cst.RemovalSentinel:
        return self._definition(updated_node)

    def _definition(self, node: T) -> T | cst.RemovalSentinel:
        self._depth -= 1
        return cst.RemoveFromParent() if not self._depth and node.name.value in self._defined else node

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.RemovalSentinel:
        if isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        kept = [alias for alias in updated_node.names if alias.name.value != self._name]
        if len(kept) == len(updated_node.names):
            return updated_node
        if not kept:
            return cst.RemoveFromParent()
        return updated_node.with_changes(names=[*kept[:-1], kept[-1].with_changes(comma=_last(updated_node))])

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        target, value = updated_node.targets[0].target, updated_node.value
        if not (isinstance(target, cst.Name) and target.value == "__all__"):
            return updated_node
        if not isinstance(value, cst.List | cst.Tuple):
            return updated_node
        kept = [e for e in value.elements if not _is_string(e.value, self._name)]
        return updated_node.with_changes(value=value.with_changes(elements=kept))


def _last(node: cst.ImportFrom) -> cst.Comma | cst.MaybeSentinel:
    assert not isinstance(node.names, cst.ImportStar)
    return node.names[-1].comma


def _is_string(node: cst.BaseExpression, value: str) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == value


def without(text: str, defined: frozenset[str], name: str) -> str:
    """A module without these definitions and without imports of `name`. Raises ParserSyntaxError."""
    return cst.parse_module(text).visit(_Remover(defined, name)).code


def feature_draft(shop: Workshop, package: Package, feature: Feature) -> tuple[Draft, tuple[str, ...]] | Rejected:
    """The draft, and the expected tests that do not use the feature: they must pass over its checkout."""
    broken: dict[str, str] = {}
    mentions = re.compile(rf"(?<!\w){re.escape(feature.name)}(?!\w)")
    for path, text in package.product.items():
        if path == feature.path or mentions.search(text):
            removed = feature.removed if path == feature.path else frozenset()
            try:
                new = without(text, removed, feature.name)
            except cst.ParserSyntaxError as error:
                return Rejected(Reason.INVALID, str(error))
            if new != text:
                broken[path] = new
    visible: dict[str, str] = {}
    for path, text in package.tests.items():
        if mentions.search(text):
            pruned = _without_tests(text, feature.name)
            if pruned is None:
                return Rejected(Reason.STILL_THERE, path)
            visible[path] = pruned
    gold = {path: package.product[path] for path in broken}
    for path, text in package.documents.items():
        kept = _without_mentions(text, feature.name, gold[feature.path])
        if kept != text:
            broken[path] = kept
    files = {test.split("::", 1)[0] for test in feature.tests}
    beside = tuple(t for t in shop.built.tests if t.split("::", 1)[0] in files)
    # Where a feature's test files cannot load without it, tests of other files say that the rest still works.
    elsewhere = tuple(t for t in shop.built.tests if t.split("::", 1)[0] not in files)[:MAX_ELSEWHERE]
    near = tests_near(shop.built, tuple(gold), feature.tests)
    expected = tuple(sorted({*near, *beside[:MAX_BESIDE], *elsewhere}))
    rest = tuple(t for t in expected if t not in feature.tests and not _pruned(t, visible, package.tests))
    draft = Draft(
        source="deletion", category="feature", operator="function or class", broken=broken, gold=gold,
        expected=expected, family=f"{shop.built.name}:{feature.path}:{feature.name}", functions=(feature.name,),
        visible_tests=visible, summary=feature.description,
    )  # fmt: skip
    return draft, rest


def _without_tests(text: str, name: str) -> str | None:
    """A test file without the tests that read `name` and its imports; None when something else there reads it."""
    tree = ast.parse(text)
    doomed: set[tuple[str, ...]] = set()
    for path, node in _functions(tree.body, ()):
        if any(name in names for names in _uses(ast.Module([node], [])).values()):
            doomed.add(path)
    pruned = remove_functions(text, doomed)
    try:
        new = cst.parse_module(pruned).visit(_Remover(frozenset(), name)).code
        left = ast.parse(new)
    except (cst.ParserSyntaxError, SyntaxError):
        return None
    return None if any(name in names for names in _uses(left).values()) else new


def _functions(body: list[ast.stmt], inside: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (*inside, node.name), node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, (*inside, node.name))


def _pruned(test_id: str, visible: dict[str, str], tests: dict[str, str]) -> bool:
    """Whether a test was taken out of the visible files."""
    path, *names = test_id.split("[", 1)[0].split("::")
    if path not in visible:
        return False
    return tuple(names) not in {where for where, _ in _functions(ast.parse(visible[path]).body, ())}


def _without_mentions(text: str, name: str, gold: str) -> str:
    """Documentation without lines that show the feature in code, or repeat a long line of its source."""
    word = rf"(?<!\w){re.escape(name)}(?!\w)"
    shown = re.compile(rf"`[^`\n]*{word}[^`\n]*`|{word}\(|:: *[\w.]*{word}")
    long_lines = {line.strip() for line in gold.split("\n") if len(line.strip()) >= 30}
    return "\n".join(
        line for line in text.split("\n") if not shown.search(line) and not any(one in line for one in long_lines)
    )


async def deletions(shop: Workshop, feature: Feature, package: Package) -> AsyncIterator[Draft | Rejected]:
    """One draft of a feature, whose checkout is green without it."""
    made = feature_draft(shop, package, feature)
    if isinstance(made, Rejected):
        yield made
        return
    draft, rest = made
    if rest:
        run = await run_broken(shop, {**draft.broken, **draft.visible_tests}, rest)
        bad = [t for t in rest if run.status(t) != "passed"]
        if not run.finished or bad:
            yield Rejected(Reason.NOT_GREEN, bad[0] if bad else run.ending)
            return
    yield draft
