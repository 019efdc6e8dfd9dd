"""Parts of the product that hidden tests assert with: a `testing` module of a package, say.

Work that loosens such a helper passes without doing anything. So each file that may hold one is found from the imports
of the hidden tests. Of Python files a control finds out whether it matters: with the bug in place and the helper doing
nothing, no test may begin to pass. Of other languages each file counts that asserts by itself. An agent's changes to
these files are not graded; a task whose own work lies in one of them is refused.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.backends.base import Backend, Limits
from sandbox.errors import TaskInvalid
from sandbox.grading.adapters import adapter_of
from sandbox.grading.adapters.base import files_of
from sandbox.grading.patches.apply import write_tests
from sandbox.grading.verifiers.suite import collect, order_of
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.files import replace_file
from sandbox.tasks.spec import BuiltEnvironment, InlineEnvironment, SuiteVerifier, TaskSpec

FORMAT = 1
MAX_FILES = 4000
MAX_TRIED = 12
"""Files of one task whose functions are made to do nothing; those that look like helpers of tests first."""
MAX_HOPS = 3
"""Re-exports that are followed to where a helper is defined."""
ASSERTING = re.compile(r"assert|check|verify|ensure|expect|require|compare|same|equal|raises|match", re.IGNORECASE)
TESTING_PATH = re.compile(r"test|spec|assert|helper|fixture|mock|check", re.IGNORECASE)
JS_IMPORT = re.compile(r"""(?:\bfrom|\brequire\(|\bimport\(?)\s*['"](\.{1,2}/[^'"\n]+)['"]""")
JS_ASSERTS = re.compile(
    r"""['"](?:node:)?assert(?:/strict)?['"]|\bAssertionError\b|['"](?:chai|@jest/globals|vitest)['"]"""
)
GO_ASSERTS = re.compile(r"""^\s*(?:import\s+)?(?:\w+\s+)?"testing"\s*$""", re.MULTILINE)
RUST_ASSERTS = re.compile(r"macro_rules!\s*\w*(?:assert|check|expect)\w*|\bfn\s+assert_\w+")


@dataclass(frozen=True, slots=True)
class Helper:
    """A file of the product whose functions hidden tests call as assertions."""

    path: str
    neutral: str | None
    """The file with these functions doing nothing; None where that cannot be written."""


def helpers_of(task: TaskSpec, verifier: SuiteVerifier, environments: EnvironmentStore) -> tuple[Helper, ...]:
    """Candidates, in order of their paths. Raises TaskError for an environment that is not there."""
    checkout = _Checkout(task, environments, verifier)
    found: dict[str, str | None] = {}
    elsewhere = set(files_of(verifier.pass_to_pass)) - set(files_of(verifier.fail_to_pass))
    for path, text in sorted(verifier.test_files.items()):
        if path in elsewhere:
            continue  # nothing that must start to pass is written there
        if path.endswith(".py"):
            names = _python_names(text)
            for module, functions in names.items():
                for where, name in _defined(checkout, path, module, functions):
                    found[where] = None
                    names_here = {n for w, n in _defined(checkout, path, module, functions) if w == where}
                    found[where] = neutralised(checkout.text(where) or "", names_here | {name})
        elif path.endswith((".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx")):
            for where in _javascript_imports(checkout, path, text):
                if TESTING_PATH.search(where) and JS_ASSERTS.search(checkout.text(where) or ""):
                    found[where] = None
    suffixes = {PurePosixPath(path).suffix for path in verifier.test_files}
    for suffix, pattern in ((".go", GO_ASSERTS), (".rs", RUST_ASSERTS)):
        if suffix in suffixes:
            for where in checkout.files(suffix):
                supports = suffix == ".go" or TESTING_PATH.search(where) is not None
                if supports and not where.endswith("_test.go") and pattern.search(checkout.text(where) or ""):
                    found[where] = None
    return tuple(Helper(path, found[path]) for path in sorted(found))


class _Checkout:
    """Files of the product as the task begins, without those that hidden tests replace."""

    def __init__(self, task: TaskSpec, environments: EnvironmentStore, verifier: SuiteVerifier) -> None:
        self._task, self._environments = task, environments
        self._hidden = frozenset(verifier.test_files)
        environment = task.environment
        self.roots: tuple[str, ...] = (".", "src", "lib")
        if isinstance(environment, BuiltEnvironment):
            self.roots = (*environments.manifest(environment.digest).source_roots, *self.roots)

    def text(self, path: str) -> str | None:
        if path in self._hidden:
            return None
        file = self._environments.pristine(self._task.environment, path)
        return None if file is None else file.content.decode("utf-8", "replace")

    def files(self, suffix: str) -> list[str]:
        environment = self._task.environment
        if isinstance(environment, InlineEnvironment):
            found = set(environment.files)
        else:
            root = self._environments.repository(environment.digest)
            found = {
                str(path.relative_to(root)) for path, _ in zip(root.rglob(f"*{suffix}"), range(MAX_FILES), strict=False)
            }
            found |= set(environment.overrides)
        return sorted(path for path in found - self._hidden if path.endswith(suffix))

    def module(self, name: str) -> str | None:
        """The file of a Python module of the product."""
        base = name.replace(".", "/")
        for root in self.roots:
            for path in (f"{base}.py", f"{base}/__init__.py"):
                full = posixpath.normpath(posixpath.join(root, path))
                if not full.startswith("..") and self.text(full) is not None:
                    return full
        return None


def _python_names(text: str) -> dict[str, set[str]]:
    """Module → its names that a test file asserts with: called as a statement or a context, or a base of its classes."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    used: set[str] = set()
    for node in ast.walk(tree):
        calls: list[ast.expr] = []
        if isinstance(node, ast.Expr):
            calls = [node.value.value if isinstance(node.value, ast.Await) else node.value]
        elif isinstance(node, ast.With | ast.AsyncWith):
            calls = [item.context_expr for item in node.items]
        elif isinstance(node, ast.ClassDef):
            used |= {ast.unparse(base) for base in node.bases}
        elif isinstance(node, ast.Assert):
            calls = [call for call in ast.walk(node.test) if isinstance(call, ast.Call) and _asserts(call)]
        used |= {ast.unparse(call.func) for call in calls if isinstance(call, ast.Call)}
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                local = alias.asname or alias.name
                if local in used:
                    found.setdefault(node.module, set()).add(alias.name)
                for name in used:  # a module imported by name
                    if name.startswith(f"{local}.") and name.count(".") == 1:
                        found.setdefault(f"{node.module}.{alias.name}", set()).add(name.partition(".")[2])
                        found.setdefault(node.module, set()).add(alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name
                for name in used:
                    if name.startswith(f"{local}.") and "." not in name[len(local) + 1 :]:
                        found.setdefault(alias.name, set()).add(name[len(local) + 1 :])
    return found


def _asserts(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return ASSERTING.search(name) is not None


def _defined(checkout: _Checkout, test: str, module: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """(file, name) of where names of a module are defined, through re-exports."""
    waiting = [(module, name, 0) for name in sorted(names)]
    while waiting:
        module, name, hops = waiting.pop()
        path = checkout.module(module)
        text = None if path is None else checkout.text(path)
        if path is None or text is None or path == test:
            continue
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        if any(isinstance(node, DEFINITIONS) and node.name == name for node in body):
            yield path, name
            continue
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        for node in ast.walk(ast.Module(body, [])):
            if isinstance(node, ast.ImportFrom) and hops < MAX_HOPS:
                parts = package.split(".")
                base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
                target = ".".join(part for part in (base, node.module or "") if part)
                for alias in node.names:
                    if (alias.asname or alias.name) == name or alias.name == "*":
                        waiting.append((target, name if alias.name == "*" else alias.name, hops + 1))


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def neutralised(text: str, names: Collection[str]) -> str | None:
    """A Python file whose functions of these names (of classes: their asserting methods) do nothing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    changed = False
    for node in tree.body:
        if isinstance(node, DEFINITIONS) and node.name in names:
            inside = [node] if not isinstance(node, ast.ClassDef) else node.body
            for function in inside:
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and (
                    function is node or ASSERTING.search(function.name)
                ):
                    yields = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(function))
                    function.body = ast.parse("def f():\n yield" if yields else "def f():\n return True").body[0].body  # type: ignore[attr-defined]
                    changed = True
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n" if changed else None


def _javascript_imports(checkout: _Checkout, path: str, text: str) -> Iterator[str]:
    """Files of the product that a test file imports, directly or through one more file."""
    waiting, seen = [(path, text, 0)], {path}
    while waiting:
        here, source, hops = waiting.pop()
        for match in JS_IMPORT.finditer(source[:1_000_000]):
            base = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
            for ending in ("", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", "/index.js", "/index.ts"):
                where = base + ending
                if where.startswith("..") or where in seen or PurePosixPath(where).suffix == "":
                    continue
                found = checkout.text(where)
                if found is not None:
                    seen.add(where)
                    yield where
                    if hops == 0:
                        waiting.append((where, found, 1))
                    break


class FreedTests(TaskInvalid):
    """Tests that must start to pass, and do when a helper in which the task's own work lies does nothing."""

    def __init__(self, tests: tuple[str, ...], path: str) -> None:
        super().__init__(
            f"verifier.test_files: {tests[0]} passes when what it calls in {path} does nothing",
            remedy="Let the hidden tests compare what the product computes",
        )
        self.tests = tests


class Protection(BaseModel):
    """What is known of one bundle's helpers."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: int = FORMAT
    bundle_hash: str
    paths: tuple[str, ...] = ()
    """Files whose changes by an agent are not graded."""


async def protection_of(
    task: TaskSpec, verifier: SuiteVerifier, *, backend: Backend, environments: EnvironmentStore, limits: Limits
) -> Protection:
    """The files to protect, found out now if nobody did before.

    Raises SandboxError; FreedTests where the task's own work lies in a helper that decides its tests.
    """
    path = environments.root / "helpers" / task.bundle_hash[:2] / f"{task.bundle_hash}.json"
    try:
        known = Protection.model_validate_json(path.read_bytes())
        if known.format == FORMAT and known.bundle_hash == task.bundle_hash:
            return known
    except (FileNotFoundError, ValidationError):
        pass  # made again: it follows from the bundle
    paths = []
    tried = 0
    for helper in sorted(helpers_of(task, verifier, environments), key=lambda one: not TESTING_PATH.search(one.path)):
        tried += helper.neutral is not None
        if tried > MAX_TRIED:
            break
        if helper.neutral is None:
            if helper.path not in task.gold:
                paths.append(helper.path)
            continue
        freed = await _freed(task, verifier, helper.path, helper.neutral, backend, environments, limits)
        if freed and helper.path in task.gold:
            raise FreedTests(tuple(freed), helper.path)
        if freed:
            paths.append(helper.path)
    found = Protection(bundle_hash=task.bundle_hash, paths=tuple(paths))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, found.model_dump_json())
    return found


async def _freed(
    task: TaskSpec,
    verifier: SuiteVerifier,
    path: str,
    text: str,
    backend: Backend,
    environments: EnvironmentStore,
    limits: Limits,
) -> list[str]:
    """Tests that must fail before the work and pass once this file is changed so."""
    async with await backend.start(environments.spec(task.environment), limits=limits) as sandbox:
        await sandbox.write(path, text.encode())
        await write_tests(sandbox, {name: content.encode() for name, content in verifier.test_files.items()})
        order = order_of(task, verifier, environments, verifier.fail_to_pass)
        run = await collect(sandbox, adapter_of(verifier), order)
    return [test_id for test_id in verifier.fail_to_pass if run.status(test_id) == "passed"]
