"""Feature tasks: remove a function, class or method, and everything that only it needs, for the agent to rewrite.

The rest must stay green: the visible tests are the package's own without those of the feature, and they must pass on the
agent's checkout. The feature's tests are the hidden verifier. The instruction is its signature and docstring.
"""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from sandbox.generators.analysis.excision import qualified, without, without_users
from sandbox.generators.analysis.package import Package, module_of, reads_of
from sandbox.generators.building.builder import MAX_FAILING_SHARE, TaskBuilder, run_broken, tests_near
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.generators.building.pruning import functions_of, remove_functions
from sandbox.generators.deletion.features import Feature

MAX_BESIDE = 100
"""Further tests of the same files: they fail where the feature can no longer be imported."""
MAX_ELSEWHERE = 20
"""Tests of other files that must go on passing."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A draft, and the expected tests that the agent still sees: they must pass over its checkout."""

    draft: Draft
    rest: tuple[str, ...]


async def deletions(builder: TaskBuilder, feature: Feature, package: Package) -> AsyncIterator[Draft | Rejected]:
    """One draft of a feature, whose checkout is green without it."""
    made = removal(builder, package, feature)
    # Tests that need the feature without naming it are among its tests: they go as well, once.
    for attempt in range(2):
        if isinstance(made, Rejected):
            yield made
            return
        if not made.rest:
            yield Rejected(Reason.NOTHING_LEFT)
            return
        run = await run_broken(builder, {**made.draft.broken, **made.draft.visible_tests}, made.rest)
        bad = [t for t in made.rest if run.status(t) != "passed"]
        if not bad and run.finished:
            break
        if attempt or not run.finished or len(bad) > MAX_FAILING_SHARE * len(made.rest):
            yield Rejected(Reason.NOT_GREEN, bad[0] if bad else run.ending)
            return
        made = _less(made, bad, package)
    assert isinstance(made, Removal)
    yield made.draft


def removal(builder: TaskBuilder, package: Package, feature: Feature) -> Removal | Rejected:
    """The package without a feature, by its text alone."""
    mentions = re.compile(rf"(?<!\w){re.escape(feature.word)}(?!\w)")
    imported = {feature.word} if feature.word == feature.name else set()
    broken: dict[str, str] = {}
    visible: dict[str, str] = {}
    try:
        for path in dict.fromkeys((feature.path, *package.product)):
            text = package.product[path]
            if path in package.trees and (path == feature.path or mentions.search(text)):
                own = path == feature.path
                stale = _stale(package, feature) if own else set()
                new = without(text, feature.removed if own else (), imported | stale)
                ast.parse(new)
                if new != text:
                    broken[path] = new
        for path, text in package.tests.items():
            if mentions.search(text) and path in package.trees:
                visible[path] = without_users(text, feature.word)
                left = ast.parse(visible[path])
                if any(name == feature.word for name, _ in reads_of(left)):
                    return Rejected(Reason.STILL_THERE, path)
    except SyntaxError as error:
        return Rejected(Reason.INVALID, str(error))
    gold = {path: package.product[path] for path in broken}
    for path, text in package.documents.items():
        kept = _without_mentions(text, feature.word, gold[feature.path])
        if kept != text:
            broken[path] = kept
    files = {test.split("::", 1)[0] for test in feature.tests}
    beside = tuple(t for t in builder.built.tests if t.split("::", 1)[0] in files)
    # Where a feature's test files cannot load without it, tests of other files say that the rest still works.
    elsewhere = tuple(t for t in builder.built.tests if t.split("::", 1)[0] not in files)[:MAX_ELSEWHERE]
    near = tests_near(builder.built, tuple(gold), feature.tests)
    expected = tuple(sorted({*near, *beside[:MAX_BESIDE], *elsewhere}))
    draft = Draft(
        source="deletion", category="feature", operator="method" if "." in feature.name else "function or class",
        broken=broken, gold=gold, expected=expected, family=f"{builder.built.name}:{feature.path}:{feature.name}",
        functions=(feature.name,), visible_tests=visible, summary=feature.description,
    )  # fmt: skip
    return Removal(draft, _left(expected, visible))


def _less(made: Removal, bad: Sequence[str], package: Package) -> Removal | Rejected:
    visible = dict(made.draft.visible_tests)
    try:
        for path, functions in functions_of(bad).items():
            visible[path] = remove_functions(visible.get(path) or package.tests[path], functions)
    except (KeyError, SyntaxError) as error:
        return Rejected(Reason.NOT_GREEN, str(error))
    draft = replace(made.draft, visible_tests=visible)
    return Removal(draft, _left(draft.expected, visible))


def _left(expected: Sequence[str], visible: dict[str, str]) -> tuple[str, ...]:
    """Those that the files which the agent sees still have."""
    held = {path: {name for name, _ in qualified(ast.parse(text).body)} for path, text in visible.items()}
    found = []
    for test_id in expected:
        path, *names = test_id.split("[", 1)[0].split("::")
        if path not in held or ".".join(names) in held[path]:
            found.append(test_id)
    return tuple(found)


def _stale(package: Package, feature: Feature) -> set[str]:
    """Imports of the feature's file that nothing reads without it, and that no other file takes from there."""
    tree = package.trees[feature.path]
    nodes = dict(qualified(tree.body))
    spans = [range(nodes[one].lineno, (nodes[one].end_lineno or 0) + 1) for one in feature.removed]
    gone = {name for one in feature.removed for name, _ in reads_of(nodes[one])}
    kept = {name for name, line in reads_of(tree) if not any(line in span for span in spans)}
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    kept |= {word for text in strings for word in re.findall(r"\w+", text)}
    bound = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__")
        for alias in node.names
        if not alias.asname
    }
    stem = module_of(feature.path, package.roots).rpartition(".")[2]
    taken = {
        alias.name
        for path, other in package.trees.items()
        for node in ast.walk(other)
        if isinstance(node, ast.ImportFrom) and (node.module or stem).rpartition(".")[2] == stem
        for alias in node.names
    }
    return (bound & gone) - kept - taken


def _without_mentions(text: str, name: str, gold: str) -> str:
    """Documentation without lines that show the feature in code, or repeat a long line of its source."""
    word = rf"(?<!\w){re.escape(name)}(?!\w)"
    shown = re.compile(rf"`[^`\n]*{word}[^`\n]*`|{word}\(|:: *[\w.]*{word}")
    long_lines = {line.strip() for line in gold.split("\n") if len(line.strip()) >= 30}
    return "\n".join(
        line for line in text.split("\n") if not shown.search(line) and not any(one in line for one in long_lines)
    )
