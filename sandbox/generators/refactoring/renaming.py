"""Rename a function throughout a package and its tests by text position; layout and prose stay unchanged."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping

from sandbox.generators.analysis.package import Function, Package, reads_of
from sandbox.generators.analysis.targets import Target
from sandbox.generators.building.builder import TaskBuilder, tests_near
from sandbox.generators.building.verifiers import Work

USED = ("test_the_new_name_is_used_where_the_old_one_was", "test_each_user_of_the_old_name_uses_the_new_one")
VERBS = ("compute", "make", "find", "resolve")


def rename(builder: TaskBuilder, package: Package, target: Target, node: Function, rng: random.Random) -> Work | None:
    """The hidden tests are the package's own under the new name."""
    old = target.name
    new = f"{'_' if old.startswith('_') else ''}{rng.choice(VERBS)}_{old.strip('_')}"
    texts = {**package.product, **package.tests}
    word = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    if any(new in text for text in texts.values()):
        return None
    changed: dict[str, str] = {}
    for path, text in texts.items():
        if path in package.trees and word.search(text):
            said = renamed(text, package.trees[path], old, new)
            if said is None or (path in package.product and any(n == old for n, _ in reads_of(ast.parse(said)))):
                return None  # the same word means something else there
            changed[path] = said
    gold = {path: text for path, text in changed.items() if path in package.product and text != package.product[path]}
    rewritten = {path: text for path, text in changed.items() if path in package.tests and text != package.tests[path]}
    uses = sum(
        name == old for path in package.product if path in package.trees for name, _ in reads_of(package.trees[path])
    )
    if not uses and not rewritten:
        return None
    checks = ["test_the_new_name_is_defined_with_the_same_parameters", "test_the_old_name_is_gone"]
    return Work(
        source="rename", category="refactor", gold=gold, check="renamed.py", rewritten=rewritten,
        request=f"Rename the function `{old}` in `{target.path}` to `{new}`, and every use of it.",
        terms="Keep its parameters, leave nothing of the package's code under the old name, and change nothing else: all that "
        f"works now must keep working.{' The tests are turned to the new name by somebody else.' if rewritten else ''}",
        family=f"{builder.built.name}:{target.path}:{old}:rename",
        facts={
            "path": target.path, "old": old, "new": new, "parameters": ast.unparse(node.args), "uses": uses,
            "tests": sorted(package.tests), "product": sorted(package.product),
            "users": users_of({**package.product, **gold}, old, new),
        },
        fail_to_pass=(*checks, *(USED if uses else ())),
        tests=tests_near(builder.built, tuple(gold), target.tests),
    )  # fmt: skip


def users_of(product: Mapping[str, str], old: str, new: str) -> list[str]:
    """Top-level definitions, besides `old`, that read the name `new`, as `path:name`; code outside of any has no name.

    Files that do not parse are left out. The checks look in the same way.
    """
    found = set()
    for path, text in product.items():
        try:
            body = ast.parse(text).body
        except SyntaxError:
            continue
        for part in body:
            name = getattr(part, "name", "")
            reads = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(part)}
            if new in reads and name != old:
                found.add(f"{path}:{name}")
    return sorted(found)


def renamed(text: str, tree: ast.Module, old: str, new: str) -> str | None:
    """A file under the new name; None where a place cannot be told for sure.

    Attributes are the function's where they are read of something imported; strings where they are the name alone, end in
    it after a dot, or call it (doctests).
    """
    data = text.encode()
    lines = [0]
    for line in data.split(b"\n"):
        lines.append(lines[-1] + len(line) + 1)
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    called = re.compile(rb"(?<![\w.])%b(?=\()|(?<=[\"'.])%b(?=[\"']$)" % (old.encode(), old.encode()))
    places: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            start = lines[node.lineno - 1] + node.col_offset
            end = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            places |= {start + match.start() for match in called.finditer(data[start:end])}
        for at in _places(node, data, lines, old, imported):
            if data[at : at + len(old.encode())] != old.encode():
                return None
            places.add(at)
    for at in sorted(places, reverse=True):
        data = data[:at] + new.encode() + data[at + len(old.encode()) :]
    try:
        ast.parse(data)
    except SyntaxError:
        return None
    return data.decode()


def _places(node: ast.AST, data: bytes, lines: list[int], old: str, imported: set[str]) -> Iterator[int]:
    """Byte offsets at which a node says the name."""
    if isinstance(node, Function) and node.name == old:
        start = lines[node.lineno - 1] + node.col_offset
        yield data.index(old.encode(), data.index(b"def ", start) + 4)
    elif (isinstance(node, ast.Name) and node.id == old) or (isinstance(node, ast.alias) and node.name == old):
        yield lines[node.lineno - 1] + node.col_offset
    elif isinstance(node, ast.Attribute) and node.attr == old:
        base: ast.expr = node.value
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(base, ast.Name) and base.id in imported:
            yield lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0) - len(old.encode())
