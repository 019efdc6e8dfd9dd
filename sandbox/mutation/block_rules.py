"""Mutation operators on statements and blocks: remove them, swap them, or leave a loop the wrong way."""

from __future__ import annotations

from itertools import pairwise

import libcst as cst

from sandbox.mutation.syntax import Found, Function, Rule


def removed(at: Function, node: cst.IndentedBlock) -> Found:
    """One statement of a block, with its lines and the comment above it.

    Nothing stands in its place: `pass` would show where to look. So a block's only statement stays.
    """
    statements = [line for line in node.body if not _is_docstring(at, line)]
    if len(statements) < 2:
        return
    known: set[str] = set()
    for line in statements:
        operator = _kind_of(line) or _assigned_again(at, line, known)
        if operator:
            yield at.delete(operator, line)


def _is_docstring(at: Function, line: cst.BaseStatement) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and line.body[0] is at.docstring


def _kind_of(line: cst.BaseStatement) -> str:
    match line:
        case cst.SimpleStatementLine(
            body=[cst.AugAssign() | cst.Break() | cst.Continue() | cst.Expr(value=cst.Call())]
        ):
            return "removed statement"
        case cst.If(orelse=None, body=cst.IndentedBlock() as body) if _leaves(body):
            return "removed guard"
        case cst.For(orelse=None) | cst.While(orelse=None):
            return "removed loop"
    return ""


def _assigned_again(at: Function, line: cst.BaseStatement, known: set[str]) -> str:
    """For an assignment to a name that has a value before, so that the function still runs."""
    match line:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))])]):
            again = name in known or name in at.parameters
            known.add(name)
            return "removed assignment" if again else ""
    return ""


def swapped_lines(at: Function, node: cst.IndentedBlock) -> Found:
    for first, second in pairwise(node.body):
        pair = (first, second)
        if all(isinstance(line, cst.SimpleStatementLine) and _moves(line, at.docstring) for line in pair):
            yield at.swap("swapped lines", first, second)


def _moves(line: cst.SimpleStatementLine, docstring: cst.CSTNode | None) -> bool:
    one = line.body[0]
    return len(line.body) == 1 and one is not docstring and isinstance(one, cst.Assign | cst.AugAssign | cst.Expr)


def branches(at: Function, node: cst.If) -> Found:
    other = node.orelse
    if other is None:
        return
    yield at.remove_after("removed branch", node.body, other)
    if (
        isinstance(other, cst.Else)
        and isinstance(node.body, cst.IndentedBlock)
        and isinstance(other.body, cst.IndentedBlock)
    ):
        yield at.swap("inverted branches", node.body, other.body)


def _leaves(block: cst.IndentedBlock) -> bool:
    last = block.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(
        last.body[-1], cst.Return | cst.Raise | cst.Continue | cst.Break
    )


def jump(at: Function, node: cst.Break | cst.Continue) -> Found:
    yield at.replace("wrong jump", node, "continue" if isinstance(node, cst.Break) else "break")


def handler(at: Function, node: cst.Try) -> Found:
    """An exception that is no longer caught, where others still are."""
    if len(node.handlers) > 1:
        for one in node.handlers:
            yield at.delete("removed handler", one)


BLOCK_RULES = (
    Rule(("removed statement", "removed guard", "removed loop", "removed assignment"), (cst.IndentedBlock,), removed),
    Rule(("swapped lines",), (cst.IndentedBlock,), swapped_lines),
    Rule(("removed branch", "inverted branches"), (cst.If,), branches),
    Rule(("wrong jump",), (cst.Break, cst.Continue), jump),
    Rule(("removed handler",), (cst.Try,), handler),
)
