"""Probes of pytest files: the syntax tree with other constants, and assertions that report."""

from __future__ import annotations

import ast
import copy
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from sandbox.grading.dynamic_analysis.probes.variation import Made, Variant

SUPPORT = """
import contextlib as _oc_contextlib
import os as _oc_os


def _oc_hex(text):
    return text[:300].encode("utf-8", "replace").hex()


def _oc_text(ask):
    try:
        value = ask()
        return value, repr(value)
    except Exception:
        return None, "!raised"


def _oc_say(site, left, right=None):
    one, left = (None, left) if isinstance(left, str) else _oc_text(left)
    two, right = _oc_text(right) if right else (None, "")
    try:
        same = int(bool(right) and left[:1] != "!" and right[:1] != "!" and bool(one == two))
        same *= 2 if {type(one).__module__, type(two).__module__} == {"builtins"} else 1
    except Exception:
        same = 0
    row = _oc_os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2]
    print("\\n\\x02oc FILE VARIANT", site, _oc_hex(row), same, _oc_hex(left), _oc_hex(right), flush=True)


@_oc_contextlib.contextmanager
def _oc_raises(site):
    raised = "nothing"
    try:
        yield _OcAny()
    except Exception:
        raised = "!raised"
    _oc_say(site, raised)


class _OcAny:
    def __getattr__(self, name):
        return self

    def __call__(self, *_, **__):
        return self
"""
NAMES = re.compile(r"parametrize|usefixtures|skip|xfail|mark|monkeypatch|setattr|import_module|importorskip")


def is_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def probes(tests: Mapping[str, str], variants: int) -> Made:
    made = Made()
    for number, (path, text) in enumerate(tests.items()):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        pool = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        for variant in range(variants):
            rewriter = _Rewriter(Variant(variant, pool))
            changed = rewriter.visit(copy.deepcopy(tree))
            made.owners |= {(number, site): name for site, name in rewriter.owners.items()}
            support = SUPPORT.replace("FILE VARIANT", f"{number} {variant}")
            try:
                source = ast.unparse(ast.fix_missing_locations(changed))
            except (RecursionError, ValueError):
                break
            pure = PurePosixPath(path)
            made.files[str(pure.with_name(f"test_oc_{number}_{variant}_{pure.stem}.py"))] = source + "\n" + support
    return made


def command(files: Sequence[str], python: str) -> str:
    names = " ".join(shlex.quote(path) for path in files)
    return f"exec {python} -B -m pytest -s -q -rA -p no:cacheprovider --noconftest {names} >&$RESULT_FD 2>/dev/null"


def passed(output: str) -> frozenset[str]:
    ends: dict[str, set[str]] = {}
    for status, name in re.findall(
        r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (?!\S*test_oc_\d)\S+?\.py::(?:\w+::)*(\w+)", output, re.M
    ):
        ends.setdefault(name, set()).add(status)
    return frozenset(name for name, statuses in ends.items() if statuses == {"PASSED"})


class _Rewriter(ast.NodeTransformer):
    def __init__(self, variant: Variant) -> None:
        self.variant, self.site, self.function = variant, 0, ""
        self.owners: dict[int, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        above, self.function = self.function, self.function or node.name
        self.generic_visit(node)
        self.function = above
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST:
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        made: object = value
        if isinstance(value, str):
            made = self.variant.text(value)
        elif isinstance(value, bytes) and value.isascii():
            made = self.variant.text(value.decode()).encode()
        elif isinstance(value, int) and not isinstance(value, bool):
            made = self.variant.integer(value)
        elif isinstance(value, float):
            made = self.variant.real(value)
        return ast.copy_location(ast.Constant(made), node)  # type: ignore[arg-type]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The first argument of `parametrize` and its like names things."""
        keep = node.args[:1] if NAMES.search(ast.unparse(node.func)) else []
        node.func = self.visit(node.func)
        node.args = [*keep, *(self.visit(argument) for argument in node.args[len(keep) :])]
        for keyword in node.keywords:
            if keyword.arg not in ("match", "ids", "encoding", "mode", "id", "reason"):
                keyword.value = self.visit(keyword.value)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node
        call = node.value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in ("assertEqual", "assertTrue", "assertFalse", "assertIs", "assertAlmostEqual")
        ):
            return self._say(node, *(self.visit(side) for side in call.args[:2]))
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        test = self.visit(node.test)
        compares = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and len(test.ops) == 1
        sides = [test.left, test.comparators[0]] if compares else [test]
        return self._say(node, *sides)

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and re.search(r"\braises$|\.assertRaises", ast.unparse(call.func)):
                self._next()
                item.context_expr = ast.Call(ast.Name("_oc_raises"), [ast.Constant(self.site)], [])
        return node

    def _next(self) -> None:
        self.site += 1
        self.owners[self.site] = self.function

    def _say(self, node: ast.stmt, *sides: ast.expr) -> ast.AST:
        self._next()
        if any(isinstance(n, ast.Await | ast.NamedExpr | ast.Yield) for side in sides for n in ast.walk(side)):
            return node
        given = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        asked: list[ast.expr] = [ast.Lambda(given, side) for side in sides]
        call = ast.Call(ast.Name("_oc_say"), [ast.Constant(self.site), *asked], [])
        return ast.copy_location(ast.Expr(call), node)
