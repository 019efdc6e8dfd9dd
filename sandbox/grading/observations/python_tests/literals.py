"""Which literals of delivered Python tests are no input of the product: each may be what a test expects of it.

Work reads what stays in its process: constants of code, attributes, files. So the question is not how a test compares, which has
no end of forms, but what a literal is for. One that goes into a call of the product (`flows.py`) tells work nothing that the call
does not tell it. Any other one is taken out of the first run, with its test or its statement (`purge`), and the run of the
oracle's work says what still holds.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from sandbox.grading.observations.python_tests.flows import Flows
from sandbox.grading.observations.python_tests.program import Program
from sandbox.grading.observations.python_tests.purity import Function, called

TRIVIAL = (None, True, False, Ellipsis, "", b"", 0, 1, -1, 0.0, 1.0)
WORDS = frozenset(
    {"utf-8", "utf8", "utf-16", "utf-32", "ascii", "latin-1", "latin1", "cp1252", "rb", "wb", "ab", "rt", "wt", "r+", "w+", "rb+",
     "wb+", "strict", "ignore", "replace", "__main__", "function", "module", "session", "class", "package", "sys.stdin",
     "sys.stdout", "sys.stderr", "sys.argv"}
)  # fmt: skip
"""Names of encodings, modes and the like."""
SETTINGS = frozenset(
    {"encoding", "errors", "mode", "newline", "timeout", "scope", "autouse", "exist_ok", "parents", "check", "capture_output",
     "text", "indent", "delete", "flush", "buffering", "capsys", "delay", "indirect", "strict", "max_examples", "deadline"}
)  # fmt: skip
"""Arguments by keyword that set up the test."""
MARKS = frozenset(
    {
        "usefixtures",
        "asyncio",
        "timeout",
        "anyio",
        "flaky",
        "django_db",
        "skipif",
        "skip",
        "xfail",
        "filterwarnings",
        "fixture",
    }
)
SET_UP = frozenset(
    {"importorskip", "sleep", "getLogger", "insert", "set_level", "at_level", "seed", "simplefilter", "filterwarnings"}
)
"""Functions of the tests' own set-up."""
PUBLIC = "# pragma: public literals"
"""A line of a test file whose author answers for it: beside its assertions it shows only what the instruction and the checkout
tell, too. The checks that generators write have it: they look for names and files that the instruction quotes."""


def shows_public_alone(text: str) -> bool:
    return PUBLIC in map(str.strip, text.splitlines())


def unexplained(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, ast.AST]]:
    """(path, literal) of each literal that goes into no call of the product."""
    program = Program(trees)
    flows = Flows(program)
    for path, tree in trees.items():
        for node in _literals(tree):
            if not _is_explained(node, program, flows):
                yield path, node


def _literals(tree: ast.Module) -> Iterator[ast.expr]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Constant(value=value):
                if not _is_trivial(value):
                    yield node
            case ast.arg():
                pass  # an annotation
            case ast.AnnAssign(target=target, value=value):
                waiting += [target] if value is None else [target, value]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                waiting += [*node.body, *node.decorator_list, node.args]
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring in the middle of a body is stripped: it is no value
            case _:
                waiting += ast.iter_child_nodes(node)


def _is_trivial(value: object) -> bool:
    if isinstance(value, bool | None.__class__) or value is Ellipsis:
        return True
    if isinstance(value, str | bytes):
        return len(value) <= 1 or value in WORDS
    return any(value == one and type(value) is type(one) for one in TRIVIAL)


def _is_explained(node: ast.expr, program: Program, flows: Flows) -> bool:
    try:
        return flows.reaches(node) or _is_inside_input(node, program, flows)
    except RecursionError:  # an expression of a thousand levels is not looked into
        return False


def _is_inside_input(node: ast.expr, program: Program, flows: Flows) -> bool:
    """Whether a literal belongs to a call of the product that it is not an argument of, or to the test's own set-up."""
    below: ast.AST = node
    above = program.parents.get(id(node))
    while above is not None and not isinstance(above, ast.stmt | ast.Lambda):
        match above:
            case ast.Call() if called(above).startswith("_oc_"):
                if above.args and above.args[0] is below:
                    return True
            case ast.Call() if _is_mark(above) or (called(above) in SET_UP and not flows.calls.is_computed_call(above)):
                return True
            case ast.Call() if called(above) == "parametrize" and above.args and above.args[0] is below:
                return True
            case ast.Call() if called(above) == "round" and len(above.args) == 2 and above.args[1] is below:
                return True
            case ast.keyword(arg=arg) if arg in SETTINGS and isinstance(below, ast.Constant):
                return True
            case ast.Subscript(slice=place) if place is below and _is_number(below):
                return True
            case ast.Slice():
                if _is_number(below):
                    return True
            case ast.Compare() | ast.BoolOp():
                if flows.calls.is_own(above, 0, set()):
                    return True
        below, above = above, program.parents.get(id(above))
    if isinstance(above, ast.If | ast.While) and below is above.test:
        return flows.calls.is_own(above.test, 0, set())
    return False


def _is_number(node: ast.AST) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)


def _is_mark(call: ast.Call) -> bool:
    """`pytest.mark.…` and `pytest.fixture`, without what a reason says."""
    return called(call) in MARKS


def purge(files: Mapping[str, str], *, public: Collection[str] = ()) -> dict[str, str]:
    """Files without the tests and statements that hold an unexplained literal. A file that cannot be read is left empty.

    `public`: files that stay as they are (`PUBLIC`).
    """
    trees: dict[str, ast.Module] = {}
    for path, text in files.items():
        try:
            trees[path] = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            trees[path] = ast.Module([], [])
    changed = set[str]()
    while True:
        program = Program(trees)
        flows = Flows(program)
        found = [
            (path, node)
            for path, tree in trees.items()
            if path not in public
            for node in _literals(tree)
            if not _is_explained(node, program, flows)
        ]
        if not found:
            break
        for path, node in found:
            _take_out(node, program)
            changed.add(path)
    return {
        path: ast.unparse(ast.fix_missing_locations(tree)) + "\n" if path in changed else files[path]
        for path, tree in trees.items()
    }


def _take_out(node: ast.AST, program: Program) -> None:
    """The test that a literal is in, or else the smallest statement, or definition whose head it is in."""
    above: ast.AST | None = node
    statement: ast.stmt | None = None
    while above is not None:
        if isinstance(above, ast.stmt) and statement is None:
            statement = above
        if isinstance(above, Function) and above.name.lower().startswith("test"):
            statement = above
        above = program.parents.get(id(above))
    if statement is None:
        return
    holder = program.parents.get(id(statement))
    for name in ("body", "orelse", "finalbody", "handlers"):
        held = getattr(holder, name, None)
        if isinstance(held, list) and statement in held:
            held.remove(statement)
            if not held and name == "body" and not isinstance(holder, ast.Module):
                held.append(ast.Pass())
            return
