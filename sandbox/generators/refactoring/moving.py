"""Move a function to a new sibling module, with the definitions only it and its like need; the old import path still works."""

from __future__ import annotations

import ast
import builtins
import random
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.generators.analysis.excision import Excision
from sandbox.generators.analysis.package import Definition, Function, Package, module_of, reads_of
from sandbox.generators.analysis.targets import Target
from sandbox.generators.building.builder import TaskBuilder, tests_near
from sandbox.generators.building.verifiers import Work
from sandbox.generators.deletion.features import with_helpers

MODULES = ("helpers", "core", "parts", "basics")
MAX_NAMES = 6
"""Definitions that go together."""
Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True, slots=True)
class Moved:
    statements: list[ast.stmt]
    names: set[str]
    imports: list[Import]
    typing: list[Import]
    """Imports that only type checkers see."""


def move(builder: TaskBuilder, package: Package, target: Target, node: Function, rng: random.Random) -> Work | None:
    """None for a module of its own (there is no package that another could belong to), and for what hangs together with
    public parts of its module."""
    text, tree = package.product[target.path], package.trees[target.path]
    folder = target.path.rpartition("/")[0]
    free = [word for word in MODULES if f"{folder}/{word}.py" not in package.product]
    if not folder or f"{folder}/__init__.py" not in package.product or not free:
        return None
    moved = _together(package, target)
    if moved is None:
        return None
    to = f"{folder}/{rng.choice(free)}.py"
    module, to_module = module_of(target.path, builder.built.source_roots), module_of(to, builder.built.source_roots)
    try:
        cut = Excision(text)
        gone = {ast.dump(one) for one in moved.statements}
        cut.statements(lambda one: one in cut.tree.body and ast.dump(one) in gone)
        rest = cut.text()
        left = {name for name, _ in reads_of(ast.parse(rest))}
    except SyntaxError:
        return None
    elsewhere = "\n".join((*(t for p, t in package.product.items() if p != target.path), *package.tests.values()))
    wanted = sorted(
        name for name in moved.names
        if name == target.name or name in left or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", elsewhere)
    )  # fmt: skip
    return Work(
        source="move", category="structure", check="moved.py",
        gold={
            target.path: _with_import(rest, f"from {to_module} import {', '.join(wanted)}"),
            to: _module_text(text, tree, moved),
        },
        request=f"Move the function `{target.name}` from `{target.path}` to a new module `{to}`.",
        terms=f"It must still be importable from `{module}`, as the same object, and no code may be there twice. "
        "All that works now must keep working.",
        family=f"{builder.built.name}:{target.path}:{target.name}:move",
        facts={
            "path": target.path, "to": to, "name": target.name, "module": module, "to_module": to_module,
            "parameters": ast.unparse(node.args),
        },
        fail_to_pass=(
            "test_it_is_defined_in_the_new_module_with_the_same_parameters", "test_it_is_no_longer_defined_in_the_old_module",
            "test_both_modules_give_the_same_function",
        ),
        tests=tests_near(builder.built, (target.path,), target.tests),
    )  # fmt: skip


def _together(package: Package, target: Target) -> Moved | None:
    """The function, helpers that only it needs, and the private functions and constants that it shares with others."""
    text, tree = package.product[target.path], package.trees[target.path]
    defined: dict[str, list[ast.stmt]] = {}
    for one in tree.body:
        for name in _defines(one):
            defined.setdefault(name, []).append(one)
    imports = [one for one in tree.body if isinstance(one, Import)]
    typing = [
        inner for one in tree.body if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test)
        for inner in one.body if isinstance(inner, Import)
    ]  # fmt: skip
    known = set().union(*(_binds(one) for one in (*imports, *typing)), set())
    names = {name for name in with_helpers(package, target.path, target.name) if "." not in name}
    while True:
        needed = set().union(*(_globals(text, defined[name][0], name) for name in names))
        needed -= names | set(dir(builtins)) | known | {"__name__", "__file__", "__doc__"}
        if not needed:
            break
        for name in needed:
            shared = name.startswith("_") or name.isupper()
            if not shared or len(defined.get(name, ())) != 1 or re.search(rf"\bglobal\b.*\b{name}\b", text):
                return None
        names |= needed
        if len(names) > MAX_NAMES:
            return None
    if any(len(defined[name]) != 1 for name in names):
        return None
    every = set().union(*(_globals(text, defined[name][0], name) for name in names))
    future = [one for one in imports if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    statements = [one for one in tree.body if any(one is defined[name][0] for name in names)]
    return Moved(
        statements, names, [*future, *(one for one in imports if one not in future and _binds(one) & every)],
        [one for one in typing if _binds(one) & every],
    )  # fmt: skip


def _defines(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _module_text(text: str, tree: ast.Module, moved: Moved) -> str:
    lines = text.split("\n")
    head = [ast.unparse(one) for one in moved.imports]
    if moved.typing:
        if not any("TYPE_CHECKING" in line for line in head):
            head.append("from typing import TYPE_CHECKING")
        head += ["", "if TYPE_CHECKING:", *(f"    {ast.unparse(one)}" for one in moved.typing)]
    parts = []
    for one in moved.statements:
        first = min([one.lineno, *(d.lineno for d in getattr(one, "decorator_list", ()))])
        parts.append("\n".join(lines[first - 1 : one.end_lineno]))
    said = '"""Moved here from its neighbour."""\n\n'
    return said + ("\n".join(head) + "\n\n\n" if head else "\n") + "\n\n\n".join(parts) + "\n"


def _globals(text: str, node: ast.stmt, name: str) -> set[str]:
    """Names that a top-level definition reads from its module or the built-ins."""
    if not isinstance(node, Definition):
        return {
            one for one, _ in reads_of(node) if any(isinstance(n, ast.Name) and n.id == one for n in ast.walk(node))
        }
    # The private name of a parameter, say, is nobody's global: what the module itself binds decides.
    found: set[str] = set()
    waiting = [one for one in symtable.symtable(text, "module", "exec").get_children() if one.get_name() == name]
    while waiting:
        scope = waiting.pop()
        found |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
        waiting += scope.get_children()
    # Decorators, defaults and annotations belong to the module's scope.
    outer: list[ast.AST | None] = [*node.decorator_list]
    outer += [node.args, node.returns] if isinstance(node, Function) else [*node.bases, *node.keywords]
    return found | {n.id for part in outer if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}


def _binds(node: Import) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _with_import(text: str, line: str) -> str:
    """`text` with an import after its docstring, `__future__` imports and other imports at its top."""
    tree = ast.parse(text)
    last = 0
    for index, node in enumerate(tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not isinstance(node, Import):
            break
        last = node.end_lineno or last
    lines = text.split("\n")
    return "\n".join([*lines[:last], *([""] if last == 1 else []), line, *lines[last:]])
