"""Python assertions as conditions: what stays on the host, and which expressions are left to be evaluated inside."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import Literal

from sandbox.grading.observations.python_tests.purity import Names, called
from sandbox.grading.observations.python_tests.trees import cloned
from sandbox.grading.observations.reports.base import Leaf
from sandbox.grading.observations.reports.operations import ASKS, BINARY, BUILTIN_FUNCTIONS, METHODS, UNARY

ASK = "_oc_"
"""Before the name of what is asked for, the name of the function that asks for it (`runners/observing.py`)."""
DEEP, SHALLOW, RESIDUAL = 2, 1, 0
"""How much of an assertion is evaluated on the host: operators and functions of plain data, comparisons alone, nothing."""


@dataclass(slots=True)
class Lifted:
    """A condition over `v0`, `v1`, … and the expressions that these stand for."""

    leaves: list[Leaf] = field(default_factory=list)
    nodes: list[ast.expr] = field(default_factory=list)
    originals: list[ast.expr] = field(default_factory=list)
    """The nodes of the test that `nodes` are copies of."""
    asks: dict[int, str] = field(default_factory=dict)
    """Number of a leaf → the built-in function that the condition calls on it. It is asked for its result where the value is of
    another than a plain type, as a generator or an object with a `__str__` is."""
    names: Names = field(default_factory=Names)
    level: int = DEEP
    withholds: Literal["pure", "constant"] = "pure"
    """`pure`: what depends on nothing of the product is withheld. `constant`: only what calls nothing, and the rest is
    reported."""

    def leaf(self, node: ast.expr, *, observed: bool) -> ast.expr:
        self.leaves.append(Leaf(observed=observed, source=ast.unparse(node)))
        self.nodes.append(cloned(node))
        self.originals.append(node)
        return ast.Name(f"v{len(self.leaves) - 1}", ast.Load())

    def lift(self, node: ast.expr) -> ast.expr:
        """The condition's counterpart of `node`."""
        if is_literal(node):
            return cloned(node)
        if self.names.is_pure_expression(node) and (self.withholds == "pure" or self.names.is_constant(node)):
            return self.leaf(node, observed=False)
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                return ast.Compare(self.lift(left), ops, [self.lift(other) for other in others])
            case ast.UnaryOp(op=ast.Not() as op, operand=operand):
                return ast.UnaryOp(op, self.lift(operand))
            case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) or self.level == DEEP:
                return ast.BoolOp(op, [self.lift(value) for value in values])
            case ast.Call(args=args, keywords=[]) if called(node) == "isinstance" and len(args) == 2:
                if is_class_expression(args[1]):
                    return ast.Call(
                        ast.Name("isinstance"), [self.lift(args[0]), self.leaf(args[1], observed=False)], []
                    )
            case ast.Call(args=[expected], keywords=keywords) if called(node) == "approx":
                words = [ast.keyword(word.arg, self.lift(word.value)) for word in keywords if word.arg]
                return ast.Call(ast.Name("approx"), [self.lift(expected)], words)
            case ast.Call(
                func=ast.Name(id="almost" | "same_items" | "same_sequence" | "search" as name),
                args=args,
                keywords=words,
            ):
                lifted = [ast.keyword(word.arg, self.lift(word.value)) for word in words]
                return self._called(name, args, lifted)
        if self.level == DEEP:
            deeper = self._deeper(node)
            if deeper is not None:
                return deeper
        return self.leaf(node, observed=True)

    def _deeper(self, node: ast.expr) -> ast.expr | None:
        match node:
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items) if not _starred(items):
                made = copy.copy(node)
                made.elts = [self.lift(item) for item in items]
                return made
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return ast.BinOp(self.lift(left), op, self.lift(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
                return ast.UnaryOp(op, self.lift(operand))
            case ast.Subscript(value=value, slice=key) if is_literal(key) or isinstance(key, ast.Slice):
                parts = [key.lower, key.upper, key.step] if isinstance(key, ast.Slice) else []
                if all(part is None or is_literal(part) for part in parts):
                    return ast.Subscript(self.lift(value), cloned(key), ast.Load())
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
                name in BUILTIN_FUNCTIONS and self.names.binding_of(name) is None and not _starred(args)
            ):
                if not any(isinstance(arg, ast.GeneratorExp | ast.Lambda) for arg in args):
                    return self._called(name, args, [])
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args, keywords=[]) if (
                name in METHODS and not _starred(args) and not isinstance(value, ast.Name | ast.Attribute)
            ):
                return self._method(value, name, args)
            case ast.Call(func=ast.Attribute(value=ast.Name() as value, attr=name), args=args, keywords=[]) if (
                name in METHODS and not _starred(args) and _is_local(self.names, value.id)
            ):
                return self._method(value, name, args)
        return None

    def _called(self, name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
        lifted = [self.lift(arg) for arg in args]
        if name in ASKS and (len(args) == 1 or name == "same_items"):
            for arg in lifted:
                number = int(arg.id[1:]) if isinstance(arg, ast.Name) else -1
                if number >= 0 and self.leaves[number].observed:
                    self.asks[number] = ASKS[name]
        return ast.Call(ast.Name(name), lifted, keywords)

    def asked(self) -> list[ast.expr]:
        """`nodes` as they are delivered."""
        return [
            ast.Call(ast.Name(ASK + self.asks[number], ast.Load()), [node], []) if number in self.asks else node
            for number, node in enumerate(self.nodes)
        ]

    def _method(self, value: ast.expr, name: str, args: list[ast.expr]) -> ast.expr:
        return ast.Call(ast.Attribute(self.lift(value), name, ast.Load()), [self.lift(arg) for arg in args], [])


def _is_local(names: Names, name: str) -> bool:
    """Whether a name is a variable of the function, not a module or class of the file."""
    return names.outer is not None and name in names.bindings


def _starred(items: list[ast.expr]) -> bool:
    return any(isinstance(item, ast.Starred) for item in items)


def is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def is_class_expression(node: ast.expr) -> bool:
    """`E`, `module.E` or a tuple of them."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(is_class_expression(item) for item in node.elts)
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(arguments), [])


COMPARISONS: dict[str, type[ast.cmpop]] = {
    "assertEqual": ast.Eq, "assertEquals": ast.Eq, "assertNotEqual": ast.NotEq, "assertIs": ast.Is,
    "assertIsNot": ast.IsNot, "assertIn": ast.In, "assertNotIn": ast.NotIn, "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE, "assertLess": ast.Lt, "assertLessEqual": ast.LtE, "assertListEqual": ast.Eq,
    "assertTupleEqual": ast.Eq, "assertDictEqual": ast.Eq, "assertSetEqual": ast.Eq,
    "assertMultiLineEqual": ast.Eq, "assert_equal": ast.Eq, "eq_": ast.Eq,
}  # fmt: skip


def method_condition(node: ast.Call) -> ast.expr | None:
    """A unittest assertion as an expression; None for one that is not known."""
    name, args = called(node), node.args
    words = {word.arg: word.value for word in node.keywords if word.arg not in (None, "msg")}
    if not name.startswith(("assert", "eq_")) or _starred(args) or any(word.arg is None for word in node.keywords):
        return None
    if name in COMPARISONS and len(args) >= 2 and not words:
        return ast.Compare(args[0], [COMPARISONS[name]()], [args[1]])
    if name in ("assertTrue", "assertFalse") and args and not words:
        return args[0] if name == "assertTrue" else ast.UnaryOp(ast.Not(), args[0])
    if name in ("assertIsNone", "assertIsNotNone") and args and not words:
        operator = ast.Is() if name == "assertIsNone" else ast.IsNot()
        return ast.Compare(args[0], [operator], [ast.Constant(None)])
    if name in ("assertIsInstance", "assertNotIsInstance") and len(args) >= 2 and not words:
        made = _call("isinstance", args[0], args[1])
        return made if name == "assertIsInstance" else ast.UnaryOp(ast.Not(), made)
    if (
        name in ("assertAlmostEqual", "assertNotAlmostEqual")
        and len(args) in (2, 3)
        and set(words) <= {"places", "delta"}
    ):
        given = {"places": args[2]} if len(args) == 3 else {}
        near = ast.Call(ast.Name("almost"), args[:2], [ast.keyword(k, v) for k, v in ({**given, **words}).items() if k])
        return near if name == "assertAlmostEqual" else ast.UnaryOp(ast.Not(), near)
    if name == "assertCountEqual" and len(args) >= 2 and not words:
        return _call("same_items", args[0], args[1])
    if name == "assertSequenceEqual" and len(args) >= 2 and not words:
        return _call("same_sequence", args[0], args[1])
    if name in ("assertRegex", "assertNotRegex") and len(args) >= 2 and not words:
        found = _call("search", args[1], args[0])
        return found if name == "assertRegex" else ast.UnaryOp(ast.Not(), found)
    return None
