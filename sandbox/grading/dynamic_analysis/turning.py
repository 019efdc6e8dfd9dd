"""Turn assertions round: a test of which one assertion is negated passes under no honest work that passes the test.

Work whose objects agree with everything, whose context managers swallow what fails or whose sequences claim a length and hold
nothing passes both. Each copy of a test file has one assertion turned; only assertions that a test reaches in any case are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

MAX_TURNED = 40
"""Copies of all files together."""
OPPOSITE = {
    "equal": "notEqual", "strictEqual": "notStrictEqual", "deepEqual": "notDeepEqual",
    "deepStrictEqual": "notDeepStrictEqual", "notEqual": "equal", "notStrictEqual": "strictEqual",
    "notDeepEqual": "deepEqual", "notDeepStrictEqual": "deepStrictEqual", "match": "doesNotMatch",
}  # fmt: skip
"""Methods of node's `assert` and what says the contrary of the same arguments."""
NODE_TEST = re.compile(r"(?<![\w.])(?:test|it)(?:\.only)?\(\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|`([^`$]*)`)")
NODE_ASSERTION = re.compile(r"(?<![\w.])(assert)(?:\.(\w+))?\(")
NOT_ALWAYS = re.compile(r"\b(if|else|catch|switch)\b|\?|&&|\|\|")
"""Code before an assertion in its line that may keep it from being reached."""
EXPECTS = re.compile(r"raises|warns|suppress|assertRaises|assertWarns|skip|xfail")


@dataclass(frozen=True, slots=True)
class Turned:
    """A copy of a test file in which one assertion of the test `name` says the contrary."""

    path: str
    text: str
    original: str
    name: str
    line: int

    def original_of(self, test_id: str) -> str:
        """The id of the same test in the original file; empty for a test whose assertions stand as they were."""
        path, _, rest = test_id.partition("::")
        names = [part.partition("[")[0] if self.path.endswith(".py") else part for part in rest.split("::")]
        return f"{self.original}::{rest}" if path == self.path and self.name in names[-1:] else ""


def turned(files: Mapping[str, str]) -> list[Turned]:
    """Copies of these test files, one for each assertion, up to MAX_TURNED."""
    made: list[Turned] = []
    for original, text in files.items():
        of_file = _python(text) if original.endswith(".py") else _node(text)
        pure = PurePosixPath(original)
        for number, (name, line, changed) in enumerate(of_file):
            stem, _, rest = pure.name.partition(".")
            path = str(pure.with_name(f"{stem}_turned_{number}.{rest}"))
            made.append(Turned(path, changed, original, name, line))
    return made[:MAX_TURNED]


def vacuous(copies: list[Turned], straight: Mapping[str, str], statuses: Mapping[str, str]) -> list[Turned]:
    """Copies that pass wherever the original passes: what their assertion says makes no difference."""
    found = []
    for item in copies:
        both = [
            (straight.get(original), status)
            for test_id, status in statuses.items()
            if (original := item.original_of(test_id))
        ]
        if both and all(pair == ("passed", "passed") for pair in both):
            found.append(item)
    return found


def _python(text: str) -> Iterator[tuple[str, int, str]]:
    """(test, line, text of the module with one assertion turned)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    tests = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    ]
    for test in tests:
        for place, index in list(_reached(test.body)):
            statement = place[index]
            place[index] = _contrary(statement)
            changed = ast.unparse(tree)
            place[index] = statement
            yield test.name, statement.lineno, changed


def _reached(body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], int]]:
    """Places of assertions that no condition stands before. A `with` that expects an error ends before its last line."""
    for index, statement in enumerate(body):
        if isinstance(statement, ast.Assert) or _is_unittest(statement):
            yield body, index
        elif isinstance(statement, ast.For | ast.AsyncFor | ast.With | ast.AsyncWith) and not any(
            EXPECTS.search(ast.unparse(item.context_expr)) for item in getattr(statement, "items", ())
        ):
            yield from _reached(statement.body)
        elif any(isinstance(node, ast.Return | ast.Continue | ast.Break) for node in ast.walk(statement)):
            return


def _is_unittest(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and re.fullmatch(r"assert(?!Raises|Warns|Logs|NoLogs)\w+", call.func.attr) is not None
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
    )


def _contrary(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.Assert):
        return ast.Assert(ast.UnaryOp(ast.Not(), statement.test), statement.msg)
    ends = ast.Raise(ast.Call(ast.Name("AssertionError"), [ast.Constant("turned")], []), None)
    handler = ast.ExceptHandler(ast.Name("AssertionError"), None, [ast.Pass()])
    return ast.Try([statement], [handler], [ends], [])


def _node(text: str) -> Iterator[tuple[str, int, str]]:
    tests = [(found.start(), next(filter(None, found.groups()), "")) for found in NODE_TEST.finditer(text)]
    for found in NODE_ASSERTION.finditer(text):
        name = next((title for start, title in reversed(tests) if start < found.start()), "")
        head = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        method = found[2] or "ok"
        if not name or NOT_ALWAYS.search(head) or head.lstrip().startswith("//"):
            continue
        if method in OPPOSITE:
            contrary = f"{found[1]}.{OPPOSITE[method]}("
        elif method == "ok":
            contrary = f"((value) => {found[1]}.equal(Boolean(value), false))("
        else:
            continue
        line = text.count("\n", 0, found.start()) + 1
        yield name, line, text[: found.start()] + contrary + text[found.end() :]
