"""Judging conditions over reported values, on the host.

A condition is a Python expression over the names `v0`, `v1`, …. Only operators, a few built-in functions and methods of
exact built-in types are evaluated, on decoded plain data, so nothing of the product runs here.
"""

from __future__ import annotations

import ast
import collections.abc
import math
import numbers
import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from sandbox.grading.adapters.base import Hit
from sandbox.grading.observations.reports.base import Expected, Site
from sandbox.grading.observations.reports.values import Cut, Opaque, Raised, Types, Unreadable, Value, decode

MAX_MESSAGE = 2000
"""Characters of an exception's message that a pattern is searched in."""


class Unjudgeable(Exception):
    """A condition that cannot be decided on these values."""


class Approx:
    """`pytest.approx`: numbers within a tolerance, also in sequences and mappings."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self.expected, self.rel, self.abs, self.nan_ok = expected, rel, abs, nan_ok

    def __eq__(self, actual: object) -> bool:
        return self._near(actual, self.expected)

    def _near(self, actual: Any, expected: Any) -> bool:
        if isinstance(expected, dict):
            return (
                isinstance(actual, dict)
                and actual.keys() == expected.keys()
                and all(self._near(actual[k], expected[k]) for k in expected)
            )
        if isinstance(expected, list | tuple):
            return (
                isinstance(actual, list | tuple)
                and len(actual) == len(expected)
                and all(map(self._near, actual, expected))
            )
        if isinstance(expected, bool) or not isinstance(expected, numbers.Number):
            return bool(actual == expected)
        if isinstance(actual, bool) or not isinstance(actual, numbers.Number):
            return False
        if actual == expected:
            return True
        a, b = cast(Any, actual), cast(Any, expected)
        if a != a or b != b:
            return bool(self.nan_ok and a != a and b != b)
        if math.isinf(builtins_abs(b)) or math.isinf(builtins_abs(a)):
            return False
        absolute = 1e-12 if self.abs is None else self.abs
        relative = (1e-6 if self.rel is None else self.rel) * builtins_abs(b)
        tolerance = absolute if self.rel is None and self.abs is not None else max(absolute, relative)
        return bool(builtins_abs(a - b) <= tolerance)


builtins_abs = abs


def almost(a: Any, b: Any, places: int | None = None, delta: Any = None) -> bool:
    """`assertAlmostEqual`."""
    if a == b:
        return True
    return bool(abs(a - b) <= delta) if delta is not None else round(abs(a - b), 7 if places is None else places) == 0


def same_items(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """`assertCountEqual`: the same elements in any order."""
    try:
        return Counter(a) == Counter(b)
    except TypeError:
        rest = list(b)
        for item in list(a)[:2000]:
            if item not in rest:
                return False
            rest.remove(item)
        return not rest and len(a) <= 2000


def search(pattern: str, text: str) -> bool:
    """`re.search` on the beginning of a text, with a pattern that ends soon on any text (`is_tame`)."""
    if not is_tame(pattern):
        raise Unjudgeable("the pattern may take long")
    return re.search(pattern, text[:MAX_MESSAGE]) is not None


@lru_cache(maxsize=1000)
def is_tame(pattern: str) -> bool:
    """Whether a regular expression has no repeat inside a repeat, and few repeats: it ends soon on any text."""
    if len(pattern) > 1000 or re.search(r"[*+}]\s*\)+\s*[*+{]", pattern) or re.search(r"\)[*+{]", pattern):
        return False
    if len(re.findall(r"(?<!\\)[*+]|\{\d*,", pattern)) > 3 or re.search(r"\\\d|\(\?P=", pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def numeric(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if not all(isinstance(x, numbers.Number) or type(x).__module__ in ("datetime", "decimal") for x in (a, b)):
            raise Unjudgeable("only numbers are multiplied")
        return function(a, b)

    return apply


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "sorted": sorted, "set": set, "frozenset": frozenset, "list": list, "tuple": tuple, "dict": dict,
    "int": int, "float": float, "bool": bool, "str": str, "repr": repr, "abs": abs, "min": min, "max": max, "sum": sum,
    "round": round, "all": all, "any": any, "approx": Approx, "almost": almost, "same_items": same_items, "search": search,
}  # fmt: skip
BUILTIN_FUNCTIONS = frozenset(FUNCTIONS) - {"approx", "almost", "same_items", "search"}
METHODS = frozenset(
    {"startswith", "endswith", "lower", "upper", "strip", "lstrip", "rstrip", "split", "splitlines", "rsplit", "count",
     "index", "find", "isdigit", "isalpha", "isupper", "islower", "keys", "values", "items", "get", "issubset",
     "issuperset", "isdisjoint", "title", "capitalize", "partition", "rpartition"}
)  # fmt: skip
RECEIVERS = (str, bytes, list, tuple, dict, set, frozenset)
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: numeric(operator.mul), ast.Div: numeric(operator.truediv),
    ast.FloorDiv: numeric(operator.floordiv), ast.Mod: numeric(operator.mod), ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}  # fmt: skip
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
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
                return self.of(value)[self.of(key)]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(None if part is None else self.of(part) for part in (lower, upper, step)))
            case ast.Call():
                return self._call(node)
        raise Unjudgeable(f"{type(node).__name__} is not judged")

    def _compare(self, node: ast.Compare) -> bool:
        left = self.of(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.of(comparator)
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
                arguments = [self.of(argument) for argument in node.args]
                if any(isinstance(argument, Opaque | Cut | Raised | Types) for argument in arguments):
                    raise Unjudgeable(f"{name} of an object of the product")
                if name in ("set", "frozenset", "dict", "sum", "str", "repr") and len(arguments) > 1:
                    raise Unjudgeable(f"{name} with several arguments")
                return FUNCTIONS[name](*arguments, **{word: self.of(value) for word, value in keywords.items()})
            case ast.Attribute(value=value, attr=name) if name in METHODS:
                receiver = self.of(value)
                if type(receiver) not in RECEIVERS:
                    raise Unjudgeable(f"{name} of something else than a text or a container")
                made = getattr(receiver, name)(*(self.of(argument) for argument in node.args))
                return list(made) if name in ("keys", "values", "items") else made
        raise Unjudgeable("the call is not judged")

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
    return tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in type(value.content).__mro__)


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
