"""Mutation operators on statements and blocks: remove them, swap them, or run a loop once."""

from __future__ import annotations

from itertools import pairwise

import libcst as cst

from sandbox.mutation.syntax import Change, Found, Function, Rule


def removed_statement(at: Function, node: cst.SimpleStatementLine) -> Found:
    for small in node.body:
        if isinstance(small, cst.AugAssign | cst.Break | cst.Continue) or (
            isinstance(small, cst.Expr) and isinstance(small.value, cst.Call)
        ):
            yield at.replace("removed statement", small, "pass")


def removed_assignment(at: Function, node: cst.IndentedBlock) -> Found:
    """The second assignment to a name in a block, so that the first one's value stays."""
    known: set[str] = set()
    for line in node.body:
        for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
                name = small.targets[0].target.value
                if name in known or name in at.names[: len(at.node.params.params)]:
                    yield at.replace("removed assignment", small, "pass")
                known.add(name)


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
        if isinstance(node.body, cst.IndentedBlock) and _leaves(node.body):
            yield _emptied(at, "removed guard", node.body)
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


def _emptied(at: Function, operator: str, block: cst.IndentedBlock) -> Change:
    return at.replace(operator, block, "pass")


def loop_once(at: Function, node: cst.For | cst.While) -> Found:
    """A loop that ends after its first round, and one that does nothing."""
    if isinstance(node.body, cst.IndentedBlock):
        end, last = at.span(node.body)[1], node.body.body[-1]
        if not (isinstance(last, cst.SimpleStatementLine) and _ends(last)):
            yield Change("loop runs once", end, end, f"\n{' ' * at.indent(node.body)}break")
        yield _emptied(at, "removed loop", node.body)


def _ends(line: cst.SimpleStatementLine) -> bool:
    return isinstance(line.body[-1], cst.Return | cst.Raise | cst.Break)


def handler(at: Function, node: cst.ExceptHandler) -> Found:
    """An exception that is swallowed, or one that is no longer caught."""
    if isinstance(node.body, cst.IndentedBlock) and at.text(node.body) not in ("raise", "pass"):
        yield at.replace("removed handler", node.body, "raise")


BLOCK_RULES = (
    Rule(("removed statement",), (cst.SimpleStatementLine,), removed_statement),
    Rule(("removed assignment",), (cst.IndentedBlock,), removed_assignment),
    Rule(("swapped lines",), (cst.IndentedBlock,), swapped_lines),
    Rule(("removed branch", "inverted branches", "removed guard"), (cst.If,), branches),
    Rule(("loop runs once", "removed loop"), (cst.For, cst.While), loop_once),
    Rule(("removed handler",), (cst.ExceptHandler,), handler),
)
