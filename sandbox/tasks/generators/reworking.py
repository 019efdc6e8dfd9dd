"""Work that changes no behaviour: another name (refactor), another module (structure), callers off a deprecated function
(migration). The oracle is made mechanically; the package's tests say that nothing else changed."""

from __future__ import annotations

import ast
import builtins
import random
import re
import symtable
from collections.abc import Iterator

import libcst as cst

from sandbox.tasks.generators.checked import Work, module_of
from sandbox.tasks.generators.deletion import Package, with_helpers, without
from sandbox.tasks.generators.making import Workshop, tests_near
from sandbox.tasks.generators.targets import Target

Function = ast.FunctionDef | ast.AsyncFunctionDef
VERBS = ("compute", "make", "find", "resolve")
MODULES = ("helpers", "core", "parts", "basics")
SHIM = '''

def {old}(*args, **kwargs):
    """Deprecated: use `{new}`."""
    import warnings

    warnings.warn("{old}() is deprecated, use {new}()", DeprecationWarning, stacklevel=2)
    return {new}(*args, **kwargs)
'''


def reworkable(package: Package, targets: list[Target]) -> Iterator[tuple[Target, Function]]:
    """Top-level functions that have no decorator and whose name means nothing else in the package."""
    for target in targets:
        tree = package.trees.get(target.path)
        if tree is None or target.path not in package.product or "." in target.name or target.name.startswith("__"):
            continue
        found = [node for node in tree.body if isinstance(node, Function) and node.name == target.name]
        if len(found) == 1 and not found[0].decorator_list and _means_one_thing(package, target):
            yield target, found[0]


def _means_one_thing(package: Package, target: Target) -> bool:
    defined = 0
    for path, tree in package.trees.items():
        if path in package.product:
            for node in ast.walk(tree):
                bound = (
                    node.name
                    if isinstance(node, Function | ast.ClassDef)
                    else node.arg
                    if isinstance(node, ast.arg)
                    else ""
                )
                stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == target.name
                defined += bound == target.name or stored
    return defined == 1


def _mentions(text: str, name: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(name)}(?!\w)", text))


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, text)


def rename(shop: Workshop, package: Package, target: Target, node: Function, rng: random.Random) -> Work | None:
    """A function that no test and no document names gets another name, everywhere."""
    old = target.name
    if any(_mentions(text, old) for text in (*package.tests.values(), *package.documents.values())):
        return None
    uses = sum(_reads(tree, old) for path, tree in package.trees.items() if path in package.product)
    new = f"{'_' if old.startswith('_') else ''}{rng.choice(VERBS)}_{old.strip('_')}"
    if not uses or any(_mentions(text, new) for text in package.product.values()):
        return None
    gold = {path: _renamed(text, old, new) for path, text in package.product.items() if _mentions(text, old)}
    return Work(
        source="rename", category="refactor", gold=gold, check="renamed.py",
        request=f"Rename the function `{old}` in `{target.path}` to `{new}`, and every use of it.",
        terms="Keep its parameters, leave nothing under the old name, and change nothing else: all that works now must keep "
        "working.",
        family=f"{shop.built.name}:{target.path}:{old}:rename",
        facts={
            "path": target.path, "old": old, "new": new, "parameters": ast.unparse(node.args), "uses": uses,
            "tests": sorted(package.tests),
        },
        fail_to_pass=(
            "test_the_new_name_is_defined_with_the_same_parameters", "test_the_old_name_is_gone",
            "test_the_new_name_is_used_where_the_old_one_was",
        ),
        tests=tests_near(shop.built, tuple(gold), target.tests),
    )  # fmt: skip


def _reads(tree: ast.Module, name: str) -> int:
    return sum(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        for node in ast.walk(tree)
    )


def move(shop: Workshop, package: Package, target: Target, node: Function, rng: random.Random) -> Work | None:
    """A function, with the private helpers that only it needs, goes to a new module beside its own."""
    text, tree = package.product[target.path], package.trees[target.path]
    gone = with_helpers(tree, node)
    folder = target.path.rpartition("/")[0]
    if not folder or f"{folder}/__init__.py" not in package.product:
        return None  # a module of its own: there is no package that another could belong to
    free = [word for word in MODULES if f"{folder}/{word}.py" not in package.product]
    # The private name of a parameter, say, is nobody's global: what the module itself binds decides.
    needed = set().union(*(_globals(text, name) for name in gone)) - gone - set(dir(builtins))
    imports = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom) and _binds(one) & needed]
    if not free or needed - set().union(*(_binds(one) for one in imports), set()):
        return None
    to = f"{folder}/{rng.choice(free)}.py"
    lines = text.split("\n")
    doomed = [one for one in tree.body if isinstance(one, Function | ast.ClassDef) and one.name in gone]
    parts = ["\n".join(lines[one.lineno - 1 : one.end_lineno]) for one in doomed]
    head = "\n".join(ast.unparse(one) for one in imports)
    try:
        rest = without(text, frozenset(gone), "")
    except cst.ParserSyntaxError:
        return None
    module, to_module = module_of(target.path, shop.built.source_roots), module_of(to, shop.built.source_roots)
    wanted = sorted({target.name, *(name for name in gone if _reads(ast.parse(rest), name))})
    moved = (
        '"""Moved here from its neighbour."""\n\n' + (f"{head}\n\n\n" if head else "\n") + "\n\n\n".join(parts) + "\n"
    )
    return Work(
        source="move", category="structure", check="moved.py",
        gold={target.path: _with_import(rest, f"from {to_module} import {', '.join(wanted)}"), to: moved},
        request=f"Move the function `{target.name}` from `{target.path}` to a new module `{to}`.",
        terms=f"It must still be importable from `{module}`, as the same object, and no code may be there twice. "
        "All that works now must keep working.",
        family=f"{shop.built.name}:{target.path}:{target.name}:move",
        facts={"path": target.path, "to": to, "name": target.name, "module": module, "to_module": to_module},
        fail_to_pass=(
            "test_it_is_defined_in_the_new_module", "test_it_is_no_longer_defined_in_the_old_module",
            "test_both_modules_give_the_same_function",
        ),
        tests=tests_near(shop.built, (target.path,), target.tests),
    )  # fmt: skip


def _globals(text: str, name: str) -> set[str]:
    """Names that a top-level definition reads from its module or the built-ins."""
    found: set[str] = set()
    waiting = [one for one in symtable.symtable(text, "module", "exec").get_children() if one.get_name() == name]
    while waiting:
        scope = waiting.pop()
        found |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
        waiting += scope.get_children()
    # Defaults and annotations belong to the module's scope.
    for node in ast.parse(text).body:
        if isinstance(node, Function | ast.ClassDef) and node.name == name:
            outer = [node.args, node.returns] if isinstance(node, Function) else [*node.bases, *node.keywords]
            found |= {n.id for part in outer if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}
    return found


def _binds(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _with_import(text: str, line: str) -> str:
    """`text` with an import after its docstring, `__future__` imports and other imports at its top."""
    tree = ast.parse(text)
    last = 0
    for index, node in enumerate(tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        last = node.end_lineno or last
    lines = text.split("\n")
    return "\n".join([*lines[:last], *([""] if last == 1 else []), line, *lines[last:]])


def migrate(shop: Workshop, package: Package, target: Target, node: Function, rng: random.Random) -> Work | None:
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
        family=f"{shop.built.name}:{target.path}:{old}:migration",
        facts={"old": old, "module": module_of(target.path, shop.built.source_roots), "tests": sorted(package.tests)},
        fail_to_pass=("test_nothing_uses_the_deprecated_function",),
        pass_to_pass=("test_the_deprecated_function_is_still_there_and_warns",),
        tests=tests_near(shop.built, tuple(begin), target.tests),
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
