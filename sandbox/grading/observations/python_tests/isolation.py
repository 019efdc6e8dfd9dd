"""Python tests of the first run: nothing in them, or beside them on disk, shows an expectation.

Work that finds an expectation anywhere may use it everywhere: what one assertion shows tells what another one must report.
The reports of a suite that shows some are therefore judged in a run that holds none: assertions which decide inside are
noted alone, tests that cannot be without an expectation are left out, and so are the helpers and files that only these need.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sandbox.grading.observations.python_tests.origins import helper_path
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.trees import cloned, walk

Place = tuple[str, tuple[str, ...]]
"""Path of a test file, and the names of a test in it."""
AGAIN = "_again"
"""Ends the name of a test that stands there twice."""
HOOKS = re.compile(r"pytest_.*|set_?up.*|tear_?down.*|load_tests|__.*__", re.IGNORECASE)
FIXED = re.compile(r"__.*__|pytest.*|pytestmark|collect_ignore.*")
CLASS_HOOKS = re.compile(r"set_?up.*|tear_?down.*|async(SetUp|TearDown)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Isolated:
    """What the first run delivers in place of the tests' files."""

    files: dict[str, str]
    """Test modules, and what else is changed."""
    hidden: tuple[str, ...]
    """Files of the tests that are not delivered."""
    tests: frozenset[Place]
    """Tests that are left."""
    deciding: frozenset[Place]
    """Tests that decide something inside, or are left out: they are to pass in the second run."""


def place_of(test_id: str) -> Place:
    path, *names = test_id.partition("[")[0].split("::")
    return path, tuple(names)


def again(test_id: str) -> str:
    """The id of a test's second copy."""
    head, bracket, parameters = test_id.partition("[")
    return head + AGAIN + bracket + parameters


def isolate(
    blank: Mapping[str, str], delivered: Mapping[str, str], files: Mapping[str, str], *,
    shows: Collection[Place], providers: Collection[str], twice: Collection[Place] = (),
) -> Isolated:  # fmt: skip
    """The first run's form of test modules. `blank`, `delivered`: both forms of each (path → text); `files`: all files of the
    tests. `shows` and `providers` are those of `Rewritten`; each test of `twice` gets a second copy."""
    trees = {path: ast.parse(text) for path, text in blank.items()}
    tainted = set(providers) | {names[-1] for path, names in shows if not names[-1].startswith("test")}
    helpers = {path: text for path, text in files.items() if path.endswith(".py") and path not in blank}
    showing = _showing_files(trees.values(), tainted, helpers)
    kept: set[Place] = set()
    deciding: set[Place] = set()
    for path, tree in trees.items():
        names = tainted | _imported_from(tree, showing, helpers) | _asserting(tree, helpers)
        names |= _users(tree, names)
        changed = _changed(tree, ast.parse(delivered[path]))
        moved = {where[-1] for where in changed if not where[-1].lower().startswith("test")}
        moved |= _users(tree, moved)
        for where, node, class_ in list(_tests(tree)):
            mentions = _mentions(node) | _hook_mentions(class_)
            shown = (path, where) in shows or bool(mentions & names) or _decides(node)
            if shown:
                _remove(tree, node)
            else:
                kept.add((path, where))
            if shown or where in changed or mentions & moved:
                deciding.add((path, where))
        _forget(tree, tainted)
    _prune(trees, helpers, tainted)
    made, hidden = _files_left(trees, helpers, files, tainted)
    for path, where in twice:
        if (path, where) in kept:
            _repeat(trees[path], where)
    modules = {path: ast.unparse(ast.fix_missing_locations(tree)) + "\n" for path, tree in trees.items()}
    return Isolated({**modules, **made}, hidden, frozenset(kept), frozenset(deciding))


def places_in(path: str, text: str) -> Iterator[Place]:
    """Tests of a file."""
    yield from ((path, where) for where, _, _ in _tests(ast.parse(text)))


def _tests(
    tree: ast.Module | ast.ClassDef, inside: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Function, ast.ClassDef | None]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, (*inside, node.name))
        elif isinstance(node, Function) and node.name.lower().startswith("test"):
            yield (*inside, node.name), node, tree if isinstance(tree, ast.ClassDef) else None


def _mentions(node: ast.AST) -> set[str]:
    """Names that code uses: variables, fixtures, `.name` for attributes of its object, and texts that may be names."""
    found: set[str] = set()
    for part in walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Load()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr, ctx=ast.Load()):
                found |= {"." + attr, attr}
            case ast.arg(arg=name):
                found.add(name)
            case ast.Constant(value=str() as text) if text.isidentifier():
                found.add(text)
    return found


def _hook_mentions(class_: ast.ClassDef | None) -> set[str]:
    hooks = [n for n in (class_.body if class_ else ()) if isinstance(n, Function) and CLASS_HOOKS.fullmatch(n.name)]
    return {name for hook in hooks for name in _mentions(hook)}


def _users(tree: ast.Module, names: set[str]) -> set[str]:
    """Functions and methods, not tests, that use one of `names`, directly or through each other."""
    functions = [n for n in walk(tree) if isinstance(n, Function) and not n.name.lower().startswith("test")]
    functions = [n for n in functions if not CLASS_HOOKS.fullmatch(n.name)]
    found: set[str] = set()
    while True:
        new = {n.name for n in functions if n.name not in found and _mentions(n) & (names | found)}
        if not new:
            return found
        found |= new


def _changed(tree: ast.Module, other: ast.Module) -> set[tuple[str, ...]]:
    """Functions whose text is not the same in both forms."""
    here, there = (dict(_functions(each)) for each in (tree, other))
    return {names for names, text in here.items() if there.get(names) != text}


def _functions(node: ast.Module | ast.ClassDef, inside: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, (*inside, child.name))
        elif isinstance(child, Function):
            yield (*inside, child.name), ast.dump(child)


def _decides(function: Function) -> bool:
    """Whether a test still fails by itself."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Assert | ast.Raise) or (isinstance(node, ast.Call) and called(node) == "fail"):
            return True
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def _remove(tree: ast.Module, function: Function) -> None:
    for node in walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef) and function in node.body:
            node.body = [child for child in node.body if child is not function]
            if isinstance(node, ast.ClassDef) and not node.body:
                node.body = [ast.Pass()]


def _forget(tree: ast.Module, tainted: Collection[str]) -> None:
    """Put None in place of what hooks and classes assign to attributes that hold expectations."""
    for class_ in (node for node in walk(tree) if isinstance(node, ast.ClassDef)):
        for node in walk(class_):
            if not isinstance(node, ast.Assign):
                continue
            attributes = {t.attr for t in node.targets if isinstance(t, ast.Attribute)}
            attributes |= {t.id for t in node.targets if isinstance(t, ast.Name) and node in class_.body}
            if any("." + name in tainted for name in attributes):
                node.value = ast.Constant(None)


def _showing_files(trees: Collection[ast.Module], names: set[str], helpers: Mapping[str, str]) -> set[str]:
    """Helper files that provide expectations."""
    found = {path for tree in trees for name, path in _helper_imports(tree, helpers) if name in names}
    return {path for path in found if PurePosixPath(path).name != "conftest.py"}


def _helper_imports(tree: ast.Module, helpers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for node in walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if (path := _file_of(node, alias, helpers)) is not None:
                    yield alias.asname or alias.name.partition(".")[0], path


def _file_of(node: ast.Import | ast.ImportFrom, alias: ast.alias, helpers: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Import):
        return helper_path(alias.name, "", helpers)
    return helper_path(node.module or "", alias.name, helpers) or (
        helper_path(alias.name, "", helpers) if node.level and not node.module else None
    )


def _imported_from(tree: ast.Module, paths: Collection[str], helpers: Mapping[str, str]) -> set[str]:
    return {name for name, path in _helper_imports(tree, helpers) if path in paths}


def _asserting(tree: ast.Module, helpers: Mapping[str, str]) -> set[str]:
    """Imported functions of helper files that assert."""
    found = set()
    for name, path in _helper_imports(tree, helpers):
        try:
            body = ast.parse(helpers[path]).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        named = [node for node in body if isinstance(node, Function) and node.name == name]
        if any(isinstance(part, ast.Assert) for node in named for part in walk(node)):
            found.add(name)
    return found


def _prune(trees: Mapping[str, ast.Module], helpers: Mapping[str, str], tainted: Collection[str]) -> None:
    """Take away what no test that is left needs: functions, classes and constants of the test modules, imports of helpers."""
    changed = True
    while changed:
        changed = False
        texts = {path: ast.unparse(tree) for path, tree in trees.items()}
        for path, tree in trees.items():
            stem = re.compile(rf"\b{re.escape(PurePosixPath(path).stem)}\b")
            others = [text for other, text in {**helpers, **texts}.items() if other != path and stem.search(text)]
            mentioned = [_mentions(child) for child in tree.body]
            count = Counter(name for names in mentioned for name in names)
            for node, own in list(zip(tree.body, mentioned, strict=True)):
                rest = {name for name, times in count.items() if times > (name in own)}
                if not _stays(node, _Needed(rest, others, tainted), helpers):
                    tree.body.remove(node)
                    changed = True


@dataclass(frozen=True, slots=True)
class _Needed:
    """Names that the rest of a module uses, or that occur in files which name the module, as those that import them do."""

    rest: set[str]
    others: Sequence[str]
    tainted: Collection[str]

    def has(self, name: str) -> bool:
        word = re.compile(rf"\b{re.escape(name)}\b")
        return name in self.rest or (name not in self.tainted and any(map(word.search, self.others)))


def _stays(node: ast.stmt, needed: _Needed, helpers: Mapping[str, str]) -> bool:
    """Whether a statement of a test module is needed; an import loses the names that are not."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            test = name.lower().startswith("test")
            automatic = any("autouse" in ast.unparse(decorator) for decorator in node.decorator_list)
            return test or automatic or HOOKS.fullmatch(name) is not None or needed.has(name)
        case ast.ClassDef(name=name):
            return any(True for _ in _tests(ast.Module([node], []))) or needed.has(name)
        case ast.Import() | ast.ImportFrom():
            node.names = [
                alias
                for alias in node.names
                if alias.name == "*"
                or _file_of(node, alias, helpers) is None
                or needed.has(alias.asname or alias.name.partition(".")[0])
            ]
            return bool(node.names)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return FIXED.fullmatch(name) is not None or needed.has(name)
    return True


def _files_left(
    trees: Mapping[str, ast.Module], helpers: Mapping[str, str], files: Mapping[str, str], tainted: Collection[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Changed files beside the test modules, and those that are not delivered: helpers that nothing names any more, and
    fixtures of `conftest.py` that hold expectations."""
    made: dict[str, str] = {}
    texts = {path: ast.unparse(tree) for path, tree in trees.items()}
    own = [text for path, text in files.items() if path.endswith(".py") and path not in trees and path not in helpers]
    for path, text in helpers.items():
        if PurePosixPath(path).name == "conftest.py" and (shorter := _without(text, tainted)) != text:
            made[path] = shorter
    waiting = [*texts.values(), *own, *(made.get(p, t) for p, t in helpers.items() if _is_fixed(p))]
    left = {path for path in helpers if not _is_fixed(path)}
    while waiting:
        text = waiting.pop()
        for path in list(left):
            if re.search(rf"\b{re.escape(PurePosixPath(path).stem)}\b", text):
                left.remove(path)
                waiting.append(helpers[path])
    return made, tuple(sorted(left))


def _is_fixed(path: str) -> bool:
    return PurePosixPath(path).name in ("conftest.py", "__init__.py")


def _without(text: str, names: Collection[str]) -> str:
    """A file without the functions of these names."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return text
    body = [node for node in tree.body if not (isinstance(node, Function) and node.name in names)]
    if len(body) == len(tree.body):
        return text
    tree.body = body
    return ast.unparse(tree) + "\n"


def _repeat(tree: ast.Module, where: tuple[str, ...]) -> None:
    for names, node, class_ in list(_tests(tree)):
        holder = tree if class_ is None else class_
        taken = {child.name for child in holder.body if isinstance(child, Function)}
        if names == where and node.name + AGAIN not in taken:
            copied = cloned(node)
            copied.name += AGAIN
            holder.body.insert(holder.body.index(node) + 1, copied)
