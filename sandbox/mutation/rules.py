"""Mutation operators on expressions and single statements.

`*_SWAPS` tables are two-way maps: a swap applied to its own result gives the original back.
"""

from __future__ import annotations

from itertools import pairwise

import libcst as cst
from libcst import BaseExpression

from sandbox.mutation.syntax import Change, Found, Function, Rule


def _both_ways(pairs: dict[str, str]) -> dict[str, str]:
    return pairs | {right: left for left, right in pairs.items()}


COMPARISON_SWAPS = _both_ways({"<": "<=", ">": ">=", "==": "!=", "is": "is not", "in": "not in"})
NEGATIONS = _both_ways({"<": ">=", ">": "<="})
ARITHMETIC_SWAPS = _both_ways({"+": "-", "*": "//", "%": "/", "<<": ">>", "&": "|"})
BOOLEAN_SWAPS = _both_ways({"and": "or"})
NAME_SWAPS = _both_ways({"min": "max", "any": "all", "list": "tuple"})
METHOD_SWAPS = _both_ways(
    {"startswith": "endswith", "lstrip": "rstrip", "lower": "upper", "find": "rfind", "split": "rsplit",
     "append": "extend", "keys": "values", "add": "discard"}
)  # fmt: skip
EXCEPTION_SWAPS = _both_ways({"ValueError": "TypeError", "KeyError": "IndexError"})
UNEVEN = (cst.Subtract, cst.Divide, cst.FloorDivide, cst.Modulo, cst.Power, cst.LeftShift, cst.RightShift)
"""Operators whose operands may not change places."""


def comparison(at: Function, node: cst.Comparison) -> Found:
    for target in node.comparisons:
        token = " ".join(at.text(target.operator).split())
        if token in COMPARISON_SWAPS:
            yield at.replace("comparison", target.operator, COMPARISON_SWAPS[token])


def arithmetic(at: Function, node: cst.BinaryOperation | cst.AugAssign) -> Found:
    token = at.text(node.operator)
    plain = token.removesuffix("=") if isinstance(node, cst.AugAssign) else token
    if plain in ARITHMETIC_SWAPS:
        yield at.replace("arithmetic", node.operator, ARITHMETIC_SWAPS[plain] + token[len(plain) :])


def operands(at: Function, node: cst.BinaryOperation) -> Found:
    if isinstance(node.operator, UNEVEN) and not isinstance(node.left, cst.SimpleString | cst.FormattedString):
        yield at.swap("swapped operands", node.left, node.right)
    if isinstance(node.operator, cst.Add | cst.Subtract) and isinstance(node.left, cst.BinaryOperation):
        yield at.remove_after("broken chain", node.left, node.right)


def boolean(at: Function, node: cst.BooleanOperation) -> Found:
    yield at.replace("boolean", node.operator, BOOLEAN_SWAPS[at.text(node.operator)])


def dropped_not(at: Function, node: cst.UnaryOperation) -> Found:
    if isinstance(node.operator, cst.Not):
        yield at.replace("dropped not", node, at.text(node.expression))


def constant(at: Function, node: cst.Name) -> Found:
    if node.value in ("True", "False"):
        yield at.replace("constant", node, str(node.value == "False"))


def off_by_one(at: Function, node: cst.Integer) -> Found:
    value = int(node.value.replace("_", ""), 0)
    yield at.replace("off by one", node, str(value + 1))
    if value > 0:
        yield at.replace("off by one", node, str(value - 1))


def returned(at: Function, node: cst.Return) -> Found:
    if node.value is not None and at.text(node.value) != "None":
        yield at.replace("return value", node.value, "None")


def negated(at: Function, node: cst.If | cst.While | cst.IfExp) -> Found:
    """The opposite condition as a programmer would write it.

    Conditions that other operators turn round are left to them.
    """
    match node.test:
        case cst.Name() | cst.Attribute() | cst.Call() | cst.Subscript() | cst.Await():
            yield at.replace("negated condition", node.test, f"not {at.text(node.test)}")
        case cst.Comparison(comparisons=[cst.ComparisonTarget(operator=operator)]) if at.text(operator) in NEGATIONS:
            yield at.replace("negated condition", operator, NEGATIONS[at.text(operator)])


def slice_bound(at: Function, node: cst.Slice) -> Found:
    for bound in (node.lower, node.upper):
        if bound is not None:
            yield at.replace("slice bound", bound, "")


def called(at: Function, node: cst.Call) -> Found:
    match node.func:
        case cst.Name(value=name) if name in NAME_SWAPS:
            yield at.replace("wrong function", node.func, NAME_SWAPS[name])
        case cst.Attribute(attr=cst.Name(value=name) as word) if name in METHOD_SWAPS:
            yield at.replace("wrong function", word, METHOD_SWAPS[name])


def arguments(at: Function, node: cst.Call) -> Found:
    plain = [a for a in node.args if not a.star and a.keyword is None]
    for first, second in pairwise(plain):
        yield at.swap("swapped arguments", first.value, second.value)
    for before, last in pairwise(node.args):
        if last is node.args[-1] and last.keyword is not None:
            start = at.span(before.value)[1]
            yield Change("dropped argument", start, at.span(last.value)[1], "")


def exception(at: Function, node: cst.Raise | cst.ExceptHandler) -> Found:
    kind: BaseExpression | None = node.type if isinstance(node, cst.ExceptHandler) else node.exc
    if isinstance(node, cst.Raise) and isinstance(kind, cst.Call):
        kind = kind.func
    if isinstance(kind, cst.Name) and kind.value in EXCEPTION_SWAPS:
        yield at.replace("exception type", kind, EXCEPTION_SWAPS[kind.value])


def default(at: Function, node: cst.Param) -> Found:
    """Another default; numbers and truth values have operators of their own."""
    match node.default:
        case cst.Name(value="None"):
            yield at.replace("default argument", node.default, "0")
        case cst.SimpleString() if at.text(node.default).strip("'\"rbuf"):
            yield at.replace("default argument", node.default, '""')
        case cst.Tuple() | cst.List() | cst.Dict():
            yield at.replace("default argument", node.default, "None")


def awaited(at: Function, node: cst.Await) -> Found:
    yield at.replace("dropped await", node, at.text(node.expression))


def variable(at: Function, node: cst.Arg | cst.ComparisonTarget | cst.BinaryOperation) -> Found:
    """Another name of the function where one is used: the one that comes after it there."""
    match node:
        case cst.Arg(value=cst.Name() as used) | cst.ComparisonTarget(comparator=cst.Name() as used):
            pass
        case cst.BinaryOperation(right=cst.Name() as used):
            pass
        case _:
            return
    if used.value in at.names and len(at.names) > 1:
        other = at.names[(at.names.index(used.value) + 1) % len(at.names)]
        yield at.replace("wrong variable", used, other)


def unpacking(at: Function, node: cst.AssignTarget | cst.For) -> Found:
    if isinstance(node.target, cst.Tuple) and len(node.target.elements) == 2:
        first, second = node.target.elements
        yield at.swap("swapped targets", first.value, second.value)


RULES = (
    Rule(("comparison",), (cst.Comparison,), comparison),
    Rule(("arithmetic",), (cst.BinaryOperation, cst.AugAssign), arithmetic),
    Rule(("swapped operands", "broken chain"), (cst.BinaryOperation,), operands),
    Rule(("boolean",), (cst.BooleanOperation,), boolean),
    Rule(("dropped not",), (cst.UnaryOperation,), dropped_not),
    Rule(("constant",), (cst.Name,), constant),
    Rule(("off by one",), (cst.Integer,), off_by_one),
    Rule(("return value",), (cst.Return,), returned),
    Rule(("negated condition",), (cst.If, cst.While, cst.IfExp), negated),
    Rule(("slice bound",), (cst.Slice,), slice_bound),
    Rule(("wrong function",), (cst.Call,), called),
    Rule(("swapped arguments", "dropped argument"), (cst.Call,), arguments),
    Rule(("exception type",), (cst.Raise, cst.ExceptHandler), exception),
    Rule(("default argument",), (cst.Param,), default),
    Rule(("dropped await",), (cst.Await,), awaited),
    Rule(("wrong variable",), (cst.Arg, cst.ComparisonTarget, cst.BinaryOperation), variable),
    Rule(("swapped targets",), (cst.AssignTarget, cst.For), unpacking),
)
