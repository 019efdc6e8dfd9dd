"""Work that changes no behaviour: functions that suit it, and callers that are to leave a deprecated one (migration). The
oracle is made mechanically; the package's tests say that nothing else changed."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator

import libcst as cst

from sandbox.generators.analysis.package import Function, Package, module_of
from sandbox.generators.analysis.targets import Target
from sandbox.generators.building.builder import TaskBuilder, tests_near
from sandbox.generators.building.verifiers import Work
from sandbox.generators.refactoring.renaming import VERBS, users_of

SHIM = '''

def {old}(*args, **kwargs):
    """Deprecated: use `{new}`."""
    import warnings

    warnings.warn("{old}() is deprecated, use {new}()", DeprecationWarning, stacklevel=2)
    return {new}(*args, **kwargs)
'''


def refactorable(package: Package, targets: list[Target]) -> Iterator[tuple[Target, Function]]:
    """Top-level functions that have no decorator and whose name means nothing else in the package."""
    for target in targets:
        tree = package.trees.get(target.path)
        if tree is None or target.path not in package.product or "." in target.name or target.name.startswith("__"):
            continue
        found = [node for node in tree.body if isinstance(node, Function) and node.name == target.name]
        if len(found) == 1 and not found[0].decorator_list and package.bound[target.name] == 1:
            yield target, found[0]


def _mentions(text: str, name: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(name)}(?!\w)", text))


def _reads(tree: ast.Module, name: str) -> int:
    return sum(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        for node in ast.walk(tree)
    )


def migrate(builder: TaskBuilder, package: Package, target: Target, node: Function, rng: random.Random) -> Work | None:
    """A function was replaced by another name and warns; its callers in the package still use it."""
    old = target.name
    callers = {path for path, tree in package.trees.items() if path in package.product and _reads(tree, old)}
    required = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    if not callers or required < 1 or isinstance(node, ast.AsyncFunctionDef) or old.startswith("_"):
        return None
    new = f"{rng.choice(VERBS)}_{old}"
    if any(_mentions(text, new) for text in (*package.product.values(), *package.tests.values())):
        return None
    begin, gold = {}, {}
    for path in sorted({target.path, *callers}):
        text = package.product[path]
        begin[path] = text if path != target.path else _deprecated(text, node, old, new)
        gold[path] = _calls_of(begin[path], old, new)
    gold = {path: text for path, text in gold.items() if text != begin[path]}
    if not gold:
        return None
    return Work(
        source="migration", category="migration", check="migrated.py", gold=gold,
        begin={path: text for path, text in begin.items() if text != package.product[path]},
        request=f"`{old}` in `{target.path}` is deprecated: make the package use `{new}` instead.",
        terms=f"Change every caller in the package itself. `{old}` stays, with its warning, for code of others; tests are not "
        "to be changed. All that works now must keep working.",
        family=f"{builder.built.name}:{target.path}:{old}:migration",
        facts={
            "old": old, "new": new, "module": module_of(target.path, builder.built.source_roots),
            "tests": sorted(package.tests), "product": sorted(package.product),
            "users": users_of({**package.product, **begin, **gold}, old, new),
        },
        fail_to_pass=("test_nothing_uses_the_deprecated_function", "test_each_caller_uses_the_new_function"),
        pass_to_pass=("test_the_deprecated_function_is_still_there_and_warns",),
        tests=tests_near(builder.built, tuple(begin), target.tests),
    )  # fmt: skip


def _deprecated(text: str, node: Function, old: str, new: str) -> str:
    """The module with the function under its new name, and a warning shim under the old one after it."""
    lines = text.split("\n")
    head = lines[node.lineno - 1]
    lines[node.lineno - 1] = re.sub(rf"(\bdef\s+){re.escape(old)}\b", rf"\g<1>{new}", head, count=1)
    assert node.end_lineno is not None
    lines[node.end_lineno : node.end_lineno] = SHIM.format(old=old, new=new).rstrip("\n").split("\n")
    return "\n".join(lines)


class _Calls(cst.CSTTransformer):
    """Reads of a name become reads of another; definitions, imports and strings stay."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self._old, self._new = old, new
        self.changed = False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        return updated_node.with_changes(name=original_node.name)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        if original_node.value != self._old:
            return updated_node
        self.changed = True
        return updated_node.with_changes(value=self._new)


class _Imports(cst.CSTTransformer):
    """Imports that bring a name bring another beside it."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self._old, self._new = old, new

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        if isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        if not any(alias.name.value == self._old for alias in updated_node.names):
            return updated_node
        first = cst.ImportAlias(cst.Name(self._new), comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        return updated_node.with_changes(names=[first, *updated_node.names])


def _calls_of(text: str, old: str, new: str) -> str:
    """The module with its uses of the deprecated name turned to the new one; the text as it is where it only imports it."""
    calls = _Calls(old, new)
    changed = cst.parse_module(text).visit(calls)
    return changed.visit(_Imports(old, new)).code if calls.changed else text
