"""Data flow in Python by its syntax tree: labels travel from what reads sources, tests or frames to what executes or decides.

Names are tracked by scope, without order or aliases of containers: this finds the way a value goes in ordinary code. Code
that hides the way does the same thing at run time, where it is observed (`sandbox/grading/dynamic_analysis/observing.py`).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

from sandbox.grading.audit.flow.base import Flow, Kind

MAX_NODES = 60_000
ROUNDS = 4
"""Passes over a file until labels no longer change; deeper chains are rare."""
Labels = frozenset[str]
NONE: Labels = frozenset()

SOURCE_NAME = re.compile(r"(^|[*/\w])\.py$|\.py\b|^\*$")
TEST_NAME = re.compile(
    r"(^|[/\\])tests?([/\\]|$)|(^|[/\\])(test_[\w*?]*|[\w*?]*_tests?)(\.py)?$|conftest\.py|^tests?\.\w+|\.test_\w+$"
)
RUNNER = re.compile(r"^(_?pytest|unittest|nose2?|hypothesis|pluggy)(\.|$)")
RUNNER_VARIABLE = re.compile(r"^(PYTEST_\w+|NODE_TEST_CONTEXT|TOX_ENV_NAME|RESULT_FD)$")
LISTS = frozenset({"glob", "iglob", "rglob", "walk", "listdir", "scandir", "iterdir", "iter_modules", "walk_packages"})
READS = frozenset(
    {"open", "read", "read_text", "read_bytes", "readlines", "readline", "getlines", "getline", "splitlines"}
)
GETS_SOURCE = frozenset({"getsource", "getsourcelines", "getsourcefile", "get_source", "getlines", "getblock"})
FRAMES = frozenset(
    {"_getframe", "currentframe", "stack", "extract_stack", "walk_stack", "getouterframes", "_current_frames"}
)
FRAME_PARTS = frozenset({"f_back", "f_code", "f_locals", "f_globals", "co_filename", "co_name", "f_lineno"})
CHANGES = frozenset(
    {"replace", "sub", "subn", "format", "join", "translate", "unparse", "visit", "format_map", "expandtabs"}
)
EXECUTES = frozenset({"exec", "eval", "FunctionType", "CodeType", "runsource", "runcode", "run_string", "exec_module",
                      "module_from_spec", "spec_from_file_location", "SourceFileLoader", "load_source", "run_path"})  # fmt: skip
LOADS = frozenset({"import_module", "__import__", "run_module", "spec_from_file_location", "exec_module", "run_path",
                   "SourceFileLoader", "module_from_spec", "load_source"})  # fmt: skip
WRITES = frozenset({"write", "write_text", "write_bytes", "writelines"})
STARTS = frozenset({"run", "call", "check_call", "check_output", "Popen", "system", "popen", "getoutput", "execv", "execvp",
                    "spawnv", "spawnl", "posix_spawn", "create_subprocess_exec", "create_subprocess_shell"})  # fmt: skip
ENDS = frozenset({"os._exit", "posix._exit", "os.abort", "_thread.interrupt_main"})
TEST_RUN = re.compile(r"\b(pytest|unittest|tox|nose2)\b")
IMPORTER = re.compile(r"^(importlib|imp|runpy|pkgutil|zipimport|__import__)\b")


def flows(text: str) -> list[Flow]:
    """Facts about a Python file; nothing for text that does not parse. Never executes anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    try:
        reader = Reader(tree, text)
        return sorted(reader.read(), key=lambda flow: flow.start)
    except RecursionError:
        return []


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an expression of names and attributes; parts that are neither are left out."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            if isinstance(node, ast.Name):
                parts.append(node.id)
            return ".".join(reversed(parts))


class Reader:
    def __init__(self, tree: ast.Module, text: str) -> None:
        self.tree = tree
        self.starts = [0]
        for line in text.split("\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.lines = text.split("\n")
        self.nodes: list[tuple[ast.AST, str]] = []
        self.scopes: dict[tuple[str, str], Labels] = {}
        self.returned: dict[str, Labels] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.aliases: dict[str, str] = {}
        self.candidates: set[str] = set()
        """Names of collections of functions, or of texts of code."""
        self._collect(tree, "")

    def _collect(self, tree: ast.AST, scope: str) -> None:
        waiting: list[tuple[ast.AST, str]] = [(tree, scope)]
        while waiting and len(self.nodes) < MAX_NODES:
            node, inside = waiting.pop()
            self.nodes.append((node, inside))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions[node.name] = node
                inside = f"{inside}.{node.name}"
            elif isinstance(node, ast.Import):
                self.aliases.update({a.asname: a.name for a in node.names if a.asname})
            elif isinstance(node, ast.ImportFrom) and node.module:
                self.aliases.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
        self.nodes.reverse()

    def name_of(self, node: ast.AST) -> str:
        """The dotted name with the aliases of imports resolved."""
        name = dotted(node)
        head, _, rest = name.partition(".")
        known = self.aliases.get(head)
        return name if known is None else f"{known}.{rest}" if rest else known

    # --- labels -------------------------------------------------------------------------------------------------

    def read(self) -> Iterator[Flow]:
        for _ in range(ROUNDS):
            before = (dict(self.scopes), dict(self.returned))
            for node, scope in self.nodes:
                self._learn(node, scope)
            if (self.scopes, self.returned) == before:
                break
        if len(self.nodes) >= MAX_NODES:
            yield Flow("unread", "a file is too long to be read", 0, 1)
        for node, scope in self.nodes:
            yield from self._facts(node, scope)

    def _learn(self, node: ast.AST, scope: str) -> None:
        if isinstance(node, ast.Assign):
            labels = self.of(node.value, scope)
            for target in node.targets:
                self._bind(target, labels, scope)
                self._note_candidates(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            labels = self.of(node.value, scope)
            if isinstance(node, ast.AugAssign):
                labels |= self.of(node.target, scope)
            self._bind(node.target, labels, scope)
            self._note_candidates(node.target, node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._bind(node.target, self.of(node.iter, scope), scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, self.of(node.context_expr, scope), scope)
        elif isinstance(node, ast.Return) and node.value is not None:
            name = scope.rpartition(".")[2]
            self.returned[name] = self.returned.get(name, NONE) | self.of(node.value, scope)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
            function = self.functions[node.func.id]
            names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            for name, value in zip(names, node.args, strict=False):
                self._add(f"{self._inside(function)}", name, self.of(value, scope))

    def _inside(self, function: ast.AST) -> str:
        return next((f"{scope}.{node.name}" for node, scope in self.nodes if node is function
                     and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), "")  # fmt: skip

    def _bind(self, target: ast.AST, labels: Labels, scope: str) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self._add(scope, node.id, labels)

    def _add(self, scope: str, name: str, labels: Labels) -> None:
        if labels:
            self.scopes[scope, name] = self.scopes.get((scope, name), NONE) | labels

    def _lookup(self, name: str, scope: str) -> Labels:
        found = NONE
        while True:
            found |= self.scopes.get((scope, name), NONE)
            if not scope:
                return found
            scope = scope.rpartition(".")[0]

    def _note_candidates(self, target: ast.AST, value: ast.AST) -> None:
        if isinstance(target, ast.Name) and self._is_candidates(value):
            self.candidates.add(target.id)

    def _is_candidates(self, value: ast.AST) -> bool:
        """A literal collection of two or more functions of this file, lambdas or texts of code."""
        if isinstance(value, ast.Dict):
            items: list[ast.expr] = [item for item in value.values if item is not None]
        elif isinstance(value, ast.List | ast.Tuple | ast.Set):
            items = [part for item in value.elts for part in (item.elts if isinstance(item, ast.Tuple) else [item])]
        else:
            return False
        callables = [
            item for item in items
            if isinstance(item, ast.Lambda) or (isinstance(item, ast.Name) and item.id in self.functions)
        ]  # fmt: skip
        return len(callables) >= 2

    def of(self, node: ast.AST | None, scope: str) -> Labels:
        """Labels of an expression."""
        if node is None or isinstance(node, ast.Lambda):
            return NONE
        if isinstance(node, ast.Name):
            return self._lookup(node.id, scope) | (frozenset({"own"}) if node.id in ("__file__", "__spec__") else NONE)
        if isinstance(node, ast.Constant):
            return self._of_text(node.value) if isinstance(node.value, str) else NONE
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, scope)
        if isinstance(node, ast.Call):
            return self._of_call(node, scope)
        labels: Labels = frozenset[str]().union(*(self.of(child, scope) for child in ast.iter_child_nodes(node)))
        if isinstance(node, ast.BinOp | ast.JoinedStr) and "source" in labels:
            labels |= {"changed"}
        return labels

    def _of_text(self, text: str) -> Labels:
        if len(text) > 120 or "\n" in text:
            return NONE
        labels = set()
        if TEST_NAME.search(text):
            labels.add("test")
        if SOURCE_NAME.search(text):
            labels.add("py")
        return frozenset(labels)

    def _of_attribute(self, node: ast.Attribute, scope: str) -> Labels:
        labels = self.of(node.value, scope)
        name = self.name_of(node)
        if node.attr == "__file__" or node.attr == "origin":
            labels |= {"own"}
        elif node.attr in FRAME_PARTS:
            labels |= {"frame"}
        elif node.attr == "parent" or node.attr == "parents":
            labels = (labels - {"own"}) | ({"folder"} if "own" in labels else NONE)
        if name == "sys.modules":
            labels |= {"modules"}
        elif name == "os.environ":
            labels |= {"environment"}
        elif name in ("sys.argv", "sys.orig_argv"):
            labels |= {"arguments"}
        return labels

    def _of_call(self, node: ast.Call, scope: str) -> Labels:
        name = self.name_of(node.func)
        last = name.rpartition(".")[2]
        given: Labels = frozenset[str]().union(
            *(self.of(argument, scope) for argument in node.args), *(self.of(k.value, scope) for k in node.keywords)
        )
        base = self.of(node.func.value, scope) if isinstance(node.func, ast.Attribute) else NONE
        labels = given | base
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            labels |= self.returned.get(node.func.id, NONE)
        if last in LISTS:
            listed = "py" in labels or last in (
                "walk",
                "listdir",
                "scandir",
                "iterdir",
                "iter_modules",
                "walk_packages",
            )
            labels |= {"listed"} if listed else NONE
        elif last in READS:
            if labels & {"own", "py"}:
                labels |= {"source"}
            if "test" in labels and labels & {"py", "listed", "source"}:
                labels |= {"test-text"}
        elif last in GETS_SOURCE and name.partition(".")[0] in (
            "inspect",
            "linecache",
            "dis",
            last,
            "__loader__",
            "loader",
        ):
            labels |= {"source"}
        elif last in FRAMES and (last != "stack" or name.startswith("inspect")):
            labels |= {"frame"}
        elif last in CHANGES and "source" in labels:
            labels |= {"changed"}
        elif last == "dirname":
            labels = (labels - {"own"}) | ({"folder"} if "own" in labels else NONE)
        elif last in ("getenv",) and name.startswith("os"):
            labels |= {"environment"}
        elif last in ("len", "isinstance", "exists", "is_file", "is_dir", "getLogger", "hash", "id", "mtime"):
            labels = labels - {"source", "changed", "test-text"}
        return labels

    # --- facts --------------------------------------------------------------------------------------------------

    def _flow(self, kind: Kind, note: str, node: ast.AST) -> Flow:
        line, column = getattr(node, "lineno", 1) - 1, getattr(node, "col_offset", 0)
        last, end = getattr(node, "end_lineno", line + 1) - 1, getattr(node, "end_col_offset", column)
        start = self.starts[line] + len(self.lines[line].encode()[:column].decode("utf-8", "ignore"))
        stop = self.starts[last] + len(self.lines[last].encode()[:end].decode("utf-8", "ignore"))
        return Flow(kind, note, start, stop)

    def _facts(self, node: ast.AST, scope: str) -> Iterator[Flow]:
        if isinstance(node, ast.Call):
            yield from self._of_sink(node, scope)
            yield from self._best(node)
        elif isinstance(node, ast.Compare):
            yield from self._detection(node, scope)
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from self._choice(node.target, node.iter, [*node.body], node, scope)
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            first = node.generators[0]
            inner: list[ast.AST] = [condition for generator in node.generators for condition in generator.ifs]
            inner += [node.elt] if not isinstance(node, ast.DictComp) else [node.key, node.value]
            yield from self._choice(first.target, first.iter, inner, node, scope)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == "__code__":
                    yield self._flow("rewrites-itself", "the code of a function is replaced at run time", node)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield from self._environment(node.test, scope)

    def _of_sink(self, node: ast.Call, scope: str) -> Iterator[Flow]:
        name = self.name_of(node.func)
        last = name.rpartition(".")[2]
        labels = self._of_call(node, scope)
        if any(self.name_of(a) in ENDS for a in (*node.args, *(k.value for k in node.keywords))):
            yield self._flow("ends-process", "a function that ends the process is handed over", node)
        is_exec = last in EXECUTES and (name == last or last not in ("eval", "exec") or name.startswith("builtins"))
        if is_exec and labels & {"source", "test-text"}:
            if "test-text" in labels:
                yield self._flow("reads-tests", "text of test files is executed", node)
            elif "changed" in labels or "own" in labels:
                yield self._flow("rewrites-itself", "a changed copy of source text is executed", node)
            else:
                yield self._flow("loads-code", "text of another source file is executed", node)
        elif last in LOADS and (IMPORTER.match(name) or last == "exec_module"):
            kind: Kind = "reads-tests" if "test" in labels else "loads-code"
            yield self._flow(
                kind, "test files are imported" if kind == "reads-tests" else "files are imported by name", node
            )
        elif "frame" in labels and (
            last in ("open", "getline", "getlines", "getsource", "getsourcelines", "read_text")
        ):
            yield self._flow("reads-tests", "product code reads the source of its caller", node)
        elif "test-text" in labels and last in READS:
            yield self._flow("reads-tests", "product code reads test files", node)
        elif last in WRITES or (last == "open" and self._opens_to_write(node)):
            where = self.of(node.func.value, scope) if isinstance(node.func, ast.Attribute) else labels
            if last == "open":
                where = labels
            if (
                where & {"own", "py"}
                and "source" in self._all_labels(scope)
                and last in ("write_text", "write_bytes", "open")
            ):
                yield self._flow("rewrites-itself", "source files are written at run time", node)
            elif "test" in where and "py" in where:
                yield self._flow("reads-tests", "product code writes test files", node)
        elif last in STARTS and (name.startswith(("subprocess", "os.", "asyncio")) or name == last):
            texts = [
                n.value
                for a in node.args
                for n in ast.walk(a)
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            if any(TEST_RUN.search(text) for text in texts):
                yield self._flow("runs-tests", "product code starts the test runner", node)

    def _all_labels(self, scope: str) -> Labels:
        return frozenset[str]().union(
            *(labels for (inside, _), labels in self.scopes.items() if inside == scope or not inside)
        )

    def _opens_to_write(self, node: ast.Call) -> bool:
        modes = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]
        if isinstance(node.func, ast.Attribute) and dotted(node.func) != "io.open":
            modes = [*node.args[:1], *modes]
        return any(
            isinstance(m, ast.Constant) and isinstance(m.value, str) and re.fullmatch(r"[wax+bt]+", m.value)
            for m in modes
        )

    def _detection(self, node: ast.Compare, scope: str) -> Iterator[Flow]:
        sides = [node.left, *node.comparators]
        labels: Labels = frozenset[str]().union(*(self.of(side, scope) for side in sides))
        texts = [
            n.value
            for side in sides
            for n in ast.walk(side)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        about_tests = any("test" in text.lower() or RUNNER.match(text) for text in texts)
        names = RUNNER if "modules" in labels else RUNNER_VARIABLE if "environment" in labels else None
        if names is not None and any(names.match(text) for text in texts):
            yield self._flow("detects-tests", "asks whether a test runner is loaded", node)
        elif labels & {"frame", "arguments", "own"} and about_tests:
            yield self._flow("detects-tests", "asks whether its caller is a test", node)

    def _environment(self, test: ast.expr, scope: str) -> Iterator[Flow]:
        """A condition on a variable that only test runners set, or on a caller's name that begins like a test's."""
        for call in ast.walk(test):
            if isinstance(call, ast.Call):
                texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                name = self.name_of(call.func)
                if name in ("os.environ.get", "os.getenv", "sys.modules.get") and any(
                    RUNNER_VARIABLE.match(text) or RUNNER.match(text) for text in texts
                ):
                    yield self._flow("detects-tests", "asks whether a test runner is loaded", call)
                elif name.endswith((".startswith", ".endswith", ".search", ".match")) and any(
                    "test" in text.lower() for text in texts
                ):
                    labels = self._of_call(call, scope)
                    if labels & {"frame", "arguments"}:
                        yield self._flow("detects-tests", "asks whether its caller is a test", call)

    def _choice(
        self, target: ast.AST, source: ast.AST, body: Iterable[ast.AST], node: ast.AST, scope: str
    ) -> Iterator[Flow]:
        """A loop over functions that calls each and compares what it gives with values from elsewhere."""
        named = {n.id for n in ast.walk(source) if isinstance(n, ast.Name)}
        if not (named & self.candidates or self._is_candidates(source)):
            return
        tried = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        results: set[str] = set()
        pieces = list(body)
        for piece in pieces:
            for inner in ast.walk(piece):
                if isinstance(inner, ast.Assign) and self._calls(inner.value, tried):
                    results |= {n.id for t in inner.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        for piece in pieces:
            for inner in ast.walk(piece):
                if isinstance(inner, ast.Compare) and any(isinstance(o, ast.Eq | ast.NotEq) for o in inner.ops):
                    sides = [inner.left, *inner.comparators]
                    made = [self._calls(s, tried) or (isinstance(s, ast.Name) and s.id in results) for s in sides]
                    others = [s for s, is_made in zip(sides, made, strict=True) if not is_made]
                    if (
                        any(made)
                        and others
                        and (
                            not any(isinstance(s, ast.Constant) for s in others)
                            or any(self._on_literals(s, tried) for s in sides)
                        )
                    ):
                        yield self._flow(
                            "chooses-candidate", "the implementation that gives expected values is kept", node
                        )
                        return

    def _on_literals(self, node: ast.AST, names: set[str]) -> bool:
        """A candidate is called with literals: a sample of its own."""
        return any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in names and bool(n.args)
            and all(isinstance(a, ast.Constant | ast.List | ast.Tuple | ast.Dict) for a in n.args)
            for n in ast.walk(node)
        )  # fmt: skip

    def _best(self, node: ast.Call) -> Iterator[Flow]:
        """`max(FORMS, key=lambda form: …form(x) == y…)`: the candidate that agrees best with values from elsewhere."""
        if self.name_of(node.func) not in ("max", "min", "sorted", "filter", "next") or not node.args:
            return
        given = [*node.args, *(k.value for k in node.keywords)]
        if not any(self._is_candidates(a) or (isinstance(a, ast.Name) and a.id in self.candidates) for a in given):
            return
        for argument in given:
            if not isinstance(argument, ast.Lambda):
                continue
            tried = {a.arg for a in argument.args.args}
            for inner in ast.walk(argument.body):
                if isinstance(inner, ast.Compare) and any(
                    self._calls(s, tried) for s in (inner.left, *inner.comparators)
                ):
                    yield self._flow("chooses-candidate", "the implementation that gives expected values is kept", node)
                    return

    def _calls(self, node: ast.AST, names: set[str]) -> bool:
        return any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in names for n in ast.walk(node)
        )
