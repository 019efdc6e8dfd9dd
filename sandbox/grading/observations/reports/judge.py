"""Judging conditions over reported values, on the host.

A condition is a Python expression over the names `v0`, `v1`, …. Only operators, a few built-in functions and methods of
exact built-in types are evaluated, on decoded plain data, so nothing of the product runs here.
"""

from __future__ import annotations

import ast
import collections.abc
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sandbox.grading.adapters.base import Hit
from sandbox.grading.observations.reports.base import Expected, Site
from sandbox.grading.observations.reports.operations import (
    ASKS,
    BINARY,
    COMPARE,
    FUNCTIONS,
    METHODS,
    RECEIVERS,
    UNARY,
    Unjudgeable,
    search,
)
from sandbox.grading.observations.reports.values import (
    Cut,
    LongRange,
    Opaque,
    Raised,
    Types,
    Unreadable,
    Value,
    check_hashes,
    decode,
)

SINGLETONS = (None, True, False, NotImplemented, Ellipsis)


def holds(condition: str, values: Mapping[str, Value]) -> bool:
    """Whether a condition is true. Raises Unjudgeable where Python would raise, or nothing can be said."""
    try:
        return _truth(_Evaluation(values).of(_parsed(condition)))
    except Unjudgeable:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError) as error:
        raise Unjudgeable(f"{type(error).__name__}: {error}") from error


@lru_cache(maxsize=20_000)
def _parsed(condition: str) -> ast.expr:
    return ast.parse(condition, mode="eval").body


def _truth(value: Any) -> bool:
    if isinstance(value, Opaque):
        if value.truth is None:
            raise Unjudgeable("its truth is an error")
        return value.truth
    if isinstance(value, Cut):
        raise Unjudgeable("too large to be reported")
    return bool(value)


class _Evaluation:
    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def of(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name not in self.values:
                    raise Unjudgeable(f"{name} was not reported")
                return self.values[name].content
            case ast.Tuple(elts=items):
                return tuple(self.of(item) for item in items)
            case ast.List(elts=items):
                return [self.of(item) for item in items]
            case ast.Set(elts=items):
                return {self.of(item) for item in items}
            case ast.Dict(keys=keys, values=values):
                return {
                    self.of(key): self.of(value) for key, value in zip(keys, values, strict=True) if key is not None
                }
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(_truth(self.of(part)) for part in parts)
            case ast.BoolOp(values=parts):
                return any(_truth(self.of(part)) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not _truth(self.of(operand))
            case ast.UnaryOp(op=op, operand=operand):
                return UNARY[type(op)](self.of(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return BINARY[type(op)](self.of(left), self.of(right))
            case ast.Compare():
                return self._compare(node)
            case ast.Subscript(value=value, slice=key):
                return self._held(value)[self.of(key)]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(None if part is None else self.of(part) for part in (lower, upper, step)))
            case ast.Call():
                return self._call(node)
        raise Unjudgeable(f"{type(node).__name__} is not judged")

    def _compare(self, node: ast.Compare) -> bool:
        left = self.of(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._held(comparator) if isinstance(op, ast.In | ast.NotIn) else self.of(comparator)
            if isinstance(op, ast.Is | ast.IsNot):
                if _identical(left, right) is isinstance(op, ast.IsNot):
                    return False
            else:
                if any(isinstance(side, Opaque | Cut) for side in (left, right)) and not _is_none(left, right):
                    raise Unjudgeable("an object of the product is compared")
                if not _truth(COMPARE[type(op)](left, right)):
                    return False
            left = right
        return True

    def _call(self, node: ast.Call) -> Any:
        keywords = {word.arg: word.value for word in node.keywords if word.arg is not None}
        match node.func:
            case ast.Name(id="isinstance") if len(node.args) == 2:
                return self._is_instance(node.args[0], node.args[1])
            case ast.Name(id=name) if name in FUNCTIONS:
                view = ASKS.get(name, "")
                if view not in ("", "list") and len(node.args) == 1 and view in (views := self._views(node.args[0])):
                    return views[view]
                arguments = [self._views(one).get(view, self._held(one)) for one in node.args]
                if name == "bool" and isinstance(arguments[0], Opaque):
                    return _truth(arguments[0])
                if any(isinstance(argument, Opaque | Cut | Raised | Types) for argument in arguments):
                    raise Unjudgeable(f"{name} of an object of the product")
                alone = name in ("set", "frozenset", "dict", "sum", "str", "repr")
                if alone and len(arguments) + bool(keywords and name != "dict") > 1:
                    raise Unjudgeable(f"{name} with several arguments")
                return FUNCTIONS[name](*arguments, **{word: self.of(value) for word, value in keywords.items()})
            case ast.Attribute(value=value, attr=name) if name in METHODS:
                receiver = (
                    self._held(value)
                    if name in ("keys", "values", "items", "get", "count", "index")
                    else self.of(value)
                )
                if type(receiver) not in RECEIVERS:
                    raise Unjudgeable(f"{name} of something else than a text or a container")
                arguments = [self.of(argument) for argument in node.args]
                if name in ("issubset", "issuperset", "isdisjoint"):  # these make sets of what they are given
                    for argument in arguments:
                        check_hashes(argument)
                made = getattr(receiver, name)(*arguments)
                return list(made) if name in ("keys", "values", "items") else made
        raise Unjudgeable("the call is not judged")

    def _views(self, node: ast.expr) -> Mapping[str, Any]:
        return self.values[node.id].views if isinstance(node, ast.Name) and node.id in self.values else {}

    def _held(self, node: ast.expr) -> Any:
        """A value; of an object of the product that is a container, what it holds."""
        found = self.of(node)
        return self._views(node).get("items", found) if isinstance(found, Opaque) else found

    def _is_instance(self, subject: ast.expr, wanted: ast.expr) -> bool:
        if isinstance(subject, ast.Name) and subject.id in self.values:
            value = self.values[subject.id]
        else:
            value = Value(self.of(subject))
        kinds = self.of(wanted)
        kinds = kinds if isinstance(kinds, tuple | list) else (kinds,)
        if not all(isinstance(kind, Types) for kind in kinds):
            raise Unjudgeable("not a class")
        return any(is_a(value, kind) for kind in kinds)


def _is_none(left: Any, right: Any) -> bool:
    return left is None or right is None


def _identical(left: Any, right: Any) -> bool:
    if isinstance(left, Opaque) and isinstance(right, Opaque):
        return left.number == right.number
    if isinstance(left, Types) and isinstance(right, Types):
        return left.names[:1] == right.names[:1]
    for singleton in SINGLETONS:
        if left is singleton or right is singleton:
            return left is right
    if isinstance(left, Opaque) or isinstance(right, Opaque):
        return False
    raise Unjudgeable("the identity of plain data is not known")


def types_of(value: Value) -> tuple[str, ...]:
    if value.types is not None:
        return value.types.names
    if isinstance(value.content, Opaque | Raised):
        return value.content.types.names
    kind = range if isinstance(value.content, LongRange) else type(value.content)
    return tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in kind.__mro__)


def is_a(value: Value, kind: Types) -> bool:
    """`isinstance`, by names. A class of the product is the same one in another module."""
    if not kind.names:
        return False
    name, names = kind.names[0], types_of(value)
    if name in names:
        return True
    module, _, own = name.rpartition(".")
    if module == "collections.abc" and not isinstance(value.content, Opaque):
        return isinstance(value.content, getattr(collections.abc, own, ()))
    if is_standard(name):
        return False
    return any(own == other.rpartition(".")[2] and not is_standard(other) for other in names)


def is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names or name.startswith("builtins.")


def judge_hit(site: Site, expected: Expected, hit: Hit) -> str:
    """Why a report does not meet its site's condition; "" when it does. Raises nothing for what was reported."""
    try:
        values = {f"v{index}": decode(data) for index, data in expected.values.items()}
        if site.kind == "raises":
            return _judge_raise(site, values, hit)
        if hit.raised is not None or len(hit.values) != len(site.observed):
            return f"raised {_told(hit.raised)}"
        values |= {f"v{index}": decode(data) for index, data in zip(site.observed, hit.values, strict=True)}
        if holds(site.condition, values):
            return ""
        return "another value: " + ", ".join(repr(values[f"v{index}"].content)[:120] for index in site.observed)
    except (Unjudgeable, Unreadable) as error:
        return f"cannot be judged: {error}"
    except Exception as error:  # noqa: BLE001 - whatever a report does to its judge, it is the work's own failure
        return f"cannot be judged: {type(error).__name__}"


def _judge_raise(site: Site, values: Mapping[str, Value], hit: Hit) -> str:
    if hit.raised is None:
        return "did not raise"
    raised = decode(hit.raised)
    if not isinstance(raised.content, Raised):
        return "did not raise"
    wanted = [value.content for value in values.values()]
    kinds = [kind for each in wanted for kind in (each if isinstance(each, tuple | list) else (each,))]
    if not any(isinstance(kind, Types) and is_a(raised, kind) for kind in kinds):
        return f"raised {_told(hit.raised)}"
    if site.condition and not search(site.condition, raised.content.message):
        return f"another message: {raised.content.message[:120]}"
    return ""


def _told(data: object) -> str:
    try:
        raised = decode(data).content
    except Unreadable:
        return "something unreadable"
    return f"{raised.types.names[:1]}: {raised.message[:120]}" if isinstance(raised, Raised) else "nothing readable"


def judge_test(sites: Mapping[int, Site], expected: Sequence[Expected], hits: Sequence[Hit]) -> str:
    """Why what one test reported is not what it must report; "" when it is.

    Every expected execution of every site must be there, in order of the site. A site that repeats (a loop over
    computed data) must run at least once, and each run meets the expectation that all its runs had.
    """
    wanted: dict[int, list[Expected]] = {}
    for one in expected:
        wanted.setdefault(one.site, []).append(one)
    got: dict[int, list[Hit]] = {}
    for hit in hits:
        got.setdefault(hit.site, []).append(hit)
    for number in got:
        if number not in wanted and number in sites and not sites[number].repeats:
            return f"assertion {number} is not reached by right work"
    for number, runs in wanted.items():
        site, reports = sites[number], got.get(number, [])
        loose = site.repeats and all(run == runs[0] for run in runs)
        if not reports or (len(reports) != len(runs) and not loose):
            return f"assertion {number} ran {len(reports)} times instead of {len(runs)}"
        pairs = [(runs[0], hit) for hit in reports] if loose else list(zip(runs, reports, strict=True))
        for one, hit in pairs:
            if why := judge_hit(site, one, hit):
                return f"assertion {number}: {why}"
    return ""
