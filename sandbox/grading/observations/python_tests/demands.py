"""Whether an expression of a Python test shows what is expected of the product."""

from __future__ import annotations

import ast

from sandbox.grading.observations.python_tests.origins import Origin, Origins
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.scopes import Scope
from sandbox.grading.observations.python_tests.trees import walk


def decides_inside(origins: Origins, node: ast.expr, scope: Scope, seen: set[str] | None = None) -> bool:
    """Whether an expression whose truth is asserted compares something computed with what is expected, as
    `with_tax(price).equals(Price(119))` does: it shows the expectation and tells the truth alone."""
    seen = set() if seen is None else seen
    for part in walk(node):
        operands: list[ast.expr] = []
        match part:
            case ast.Compare(left=left, comparators=others):
                operands = [left, *others]
            case ast.Call(func=ast.Attribute(value=value), args=args):
                operands = [value, *args]
            case ast.Call(args=args):
                operands = list(args)
            case ast.Name(id=name) if name not in seen:
                seen.add(name)
                if any(decides_inside(origins, source, scope, seen) for source in scope.sources.get(name, ())):
                    return True
        if len(operands) > 1 and _contrast(origins, operands, scope, isinstance(part, ast.Compare)):
            return True
    return False


def _contrast(origins: Origins, operands: list[ast.expr], scope: Scope, compares: bool) -> bool:
    found = [(origins.of(operand, scope), operand) for operand in operands]
    computed = [operand for origin, operand in found if origin is Origin.COMPUTED]
    if not computed:
        return False
    if any(origin is Origin.MADE for origin, _ in found):
        return True
    plain = [operand for origin, operand in found if origin is Origin.OWN and not _is_truth(operand)]
    return bool(plain) and (compares or any(isinstance(operand, ast.Call) for operand in computed))


def _is_truth(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, True, False, "", 0)


def is_closed(origins: Origins, node: ast.expr, scope: Scope) -> bool:
    """Whether the product computes an expression of nothing but what the test writes out: `price(119)`, `Price(100) * 2`."""
    waiting, seen, written = [node], set[str](), False
    while waiting:
        for part in walk(waiting.pop()):
            written |= isinstance(part, ast.Constant)
            if isinstance(part, ast.Name) and part.id not in seen:
                seen.add(part.id)
                if part.id in scope.parameters:
                    return False
                waiting += scope.sources.get(part.id, ())
    return written


def is_of_made(origins: Origins, node: ast.expr, scope: Scope) -> bool:
    """Whether an expression is computed of an object that the test writes out: `str(Price(119))`."""
    calls = [part for part in walk(node) if isinstance(part, ast.Call) and called(part)[:1].isupper()]
    made = any(origins.of(call, scope) is Origin.MADE and (call.args or call.keywords) for call in calls)
    return made and is_closed(origins, node, scope)


def inputs(origins: Origins, function: Function, scope: Scope) -> set[str]:
    """Names in what calls of the product get, and in what these names are made of."""
    found: set[str] = set()
    for node in walk(function):
        if not isinstance(node, ast.Call) or called(node).startswith(("_oc_", "assert")):
            continue
        if origins.of(node.func, scope) is not Origin.OWN:
            given = [*node.args, *(word.value for word in node.keywords)]
            found |= {part.id for each in given for part in walk(each) if isinstance(part, ast.Name)}
    waiting = list(found)
    while waiting:
        for source in scope.sources.get(waiting.pop(), ()):
            new = {part.id for part in walk(source) if isinstance(part, ast.Name)} - found
            found |= new
            waiting += new
    return found
