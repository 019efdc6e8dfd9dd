"""Whether an expression of a Python test shows what is expected of the product."""

from __future__ import annotations

import ast
import re

from sandbox.grading.observations.python_tests.origins import Origin, Origins
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.scopes import Scope
from sandbox.grading.observations.python_tests.trees import walk

TAKES_OUT = frozenset(
    {"removeprefix", "removesuffix", "replace", "partition", "rpartition", "split", "rsplit", "strip", "lstrip", "rstrip", "sub",
     "subn", "translate", "expandtabs"}
)  # fmt: skip
SEEKS = frozenset(
    {"startswith", "endswith", "find", "rfind", "index", "rindex", "count", "match", "search", "fullmatch", "findall", "finditer",
     "isdisjoint", "issubset", "issuperset", "difference", "intersection", "symmetric_difference", "get", "pop",
     "SequenceMatcher", "get_close_matches", "unified_diff", "ndiff", "fnmatch", "fnmatchcase", "compare_digest", "eq", "ne",
     "contains", "countOf", "indexOf", "commonprefix", "bisect", "bisect_left", "bisect_right"}
)  # fmt: skip
"""Functions and methods that compare one of their operands with another, or leave what is not in it."""
TEXT = re.compile(r"\w\w")


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


def contrasts_within(origins: Origins, node: ast.expr, scope: Scope, seen: set[str] | None = None) -> bool:
    """Whether an expression that is reported, or what its names are made of, compares within something computed with what the
    test writes out, as `texts.count("Good day")` does: the report tells the result, and the test shows the expectation.

    What an object of the product is asked for is its input, not an expectation: `Trie(words).find("Good day")`.
    """
    seen = set() if seen is None else seen
    for part in walk(node):
        match part:
            case ast.Compare(left=left, comparators=others):
                if _contrast(origins, [left, *others], scope, True):
                    return True
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in SEEKS | TAKES_OUT:
                operands = [value, *args]
                if not _is_object(value, scope) and _sets_apart(origins, operands, scope, name in TAKES_OUT):
                    return True
            case ast.Call(func=ast.Name(id=name), args=args) if name in SEEKS | TAKES_OUT:
                if _sets_apart(origins, list(args), scope, name in TAKES_OUT):
                    return True
            case ast.Subscript(value=value, slice=key) if not isinstance(key, ast.Slice):
                if origins.of(value, scope) is Origin.OWN and origins.of(key, scope) is Origin.COMPUTED:
                    return True
            case ast.BinOp(left=left, op=ast.Sub() | ast.BitAnd() | ast.BitXor(), right=right):
                if _sets_apart(origins, [left, right], scope, True):
                    return True
            case ast.Name(id=name) if name not in seen:
                seen.add(name)
                if any(contrasts_within(origins, source, scope, seen) for source in scope.sources.get(name, ())):
                    return True
    return False


def _sets_apart(origins: Origins, operands: list[ast.expr], scope: Scope, texts: bool) -> bool:
    """Whether one operand is computed and another one of the test's own, with `texts` one of two letters or more."""
    found = [(origins.of(operand, scope), operand) for operand in operands]
    if not any(origin is Origin.COMPUTED for origin, _ in found):
        return False
    own = [operand for origin, operand in found if origin is Origin.OWN and not _is_truth(operand)]
    return any(_writes(operand, scope, texts, set()) for operand in own)


def _writes(node: ast.expr, scope: Scope, texts: bool, seen: set[str]) -> bool:
    """Whether the test writes out a value in an expression or in what its names are made of."""
    for part in walk(node):
        if isinstance(part, ast.Constant):
            value = part.value.decode("latin-1") if isinstance(part.value, bytes) else part.value
            if TEXT.search(value) if isinstance(value, str) else not texts and not _is_truth(part):
                return True
        elif isinstance(part, ast.Name) and part.id not in seen:
            seen.add(part.id)
            around: Scope | None = scope
            while around is not None and part.id not in around.sources:
                around = around.outer
            if around is not None and any(_writes(one, around, texts, seen) for one in around.sources[part.id]):
                return True
    return False


def _is_object(node: ast.expr, scope: Scope) -> bool:
    """Whether it is an object that the test makes of a class: `Trie()`, or a name or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        sources = scope.sources.get(node.id, [])
        return node.id in ("self", "cls") or (bool(sources) and all(called(source)[:1].isupper() for source in sources))
    return called(node)[:1].isupper()


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
