"""What a condition may do with reported values, on the host, each with a bound on its time and memory.

Reported values are as large and as odd as the work made them. `values.py` bounds what enters here (`decode`); each operation here
takes time about linear in that, or raises Unjudgeable.
"""

from __future__ import annotations

import ast
import json
import math
import numbers
import operator
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from sandbox.grading.observations.reports.javascript import loosely
from sandbox.grading.observations.reports.values import MAX_INTEGER_DIGITS, check_hashes

MAX_MESSAGE = 2000
"""Characters of an exception's message that a pattern is searched in."""
QUICK_CHARS = (MAX_MESSAGE, MAX_MESSAGE, 500, 100)
"""By the number of repeats of a pattern: characters that it is searched in here. In longer texts, where Python may try each
repeat with each other, it is searched by a process of its own, which can be stopped."""
SEARCH_SECONDS = 5.0
SEARCH = "import json, re, sys; pattern, text = json.load(sys.stdin); sys.exit(0 if re.search(pattern, text) else 3)"
REPEAT = re.compile(r"(?<!\\)[*+]|\{\d*,")
MAX_PLACES = 400
"""Digits that `round` is asked for."""
MAX_SUM_BITS = 40_000
"""Of the denominators of summed fractions together: their sum may be that long."""
MAX_SUMMED_BITS = 200_000_000
"""Of summed integers together, each as long as the longest."""


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
    return bool(abs(a - b) <= delta) if delta is not None else rounded(abs(a - b), 7 if places is None else places) == 0


def same_items(a: Any, b: Any) -> bool:
    """`assertCountEqual`: the same elements in any order."""
    here, there = ([_hashable(item) for item in side] for side in (a, b))
    check_hashes((*here, *there))
    return Counter(here) == Counter(there)


def same_sequence(a: Any, b: Any) -> bool:
    """`assertSequenceEqual`: the same elements in the same order, of sequences of whatever types."""
    return a == b or (all(isinstance(side, Sequence) for side in (a, b)) and list(a) == list(b))


def _hashable(value: Any) -> Any:
    """A value that equals another made so where the two values are equal."""
    if isinstance(value, list | tuple):
        return type(value).__name__, *map(_hashable, value)
    if isinstance(value, dict):
        pairs = [(key, _hashable(item)) for key, item in value.items()]
        check_hashes(pairs)
        return "dict", frozenset(pairs)
    return frozenset(value) if isinstance(value, set) else bytes(value) if isinstance(value, bytearray) else value


def hashed(kind: Callable[..., Any]) -> Callable[..., Any]:
    """`set` or `frozenset` of values whose hashes differ."""

    def apply(values: Iterable[Any] = ()) -> Any:
        values = list(values)
        check_hashes(values)
        return kind(values)

    return apply


def made_dict(values: Any = (), **named: Any) -> dict[Any, Any]:
    """`dict` of a dictionary or of pairs."""
    pairs = list(values.items()) if isinstance(values, dict) else [tuple(pair) for pair in values]
    check_hashes([pair[0] for pair in pairs if pair])
    return dict(pairs, **named)


def total(values: Iterable[Any]) -> Any:
    """`sum`."""
    parts = list(values)
    if sum(part.denominator.bit_length() for part in parts if isinstance(part, Fraction)) > MAX_SUM_BITS:
        raise Unjudgeable("the sum of so many fractions may take long")
    longest = max((part.bit_length() for part in parts if isinstance(part, int)), default=0)
    if longest * len(parts) > MAX_SUMMED_BITS:
        raise Unjudgeable("the sum of so many large numbers may take long")
    return sum(parts)


def rounded(number: Any, ndigits: Any = None) -> Any:
    """`round`."""
    if isinstance(ndigits, int) and abs(ndigits) > MAX_PLACES:
        raise Unjudgeable(f"rounded to more than {MAX_PLACES} places")
    return round(number, ndigits)


def search(pattern: str, text: str) -> bool:
    """`re.search` on the beginning of a text, with a pattern that ends soon on any text (`is_tame`)."""
    if not is_tame(pattern):
        raise Unjudgeable("the pattern may take long")
    text = text[:MAX_MESSAGE]
    if len(text) <= QUICK_CHARS[len(REPEAT.findall(pattern))]:
        return re.search(pattern, text) is not None
    return _search_apart(pattern, text)


@lru_cache(maxsize=1000)
def _search_apart(pattern: str, text: str) -> bool:
    asked = json.dumps([pattern, text]).encode()
    try:
        ended = subprocess.run(
            [sys.executable, "-I", "-S", "-c", SEARCH], input=asked, capture_output=True, timeout=SEARCH_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise Unjudgeable("the search of the message takes long") from error
    if ended.returncode not in (0, 3):
        raise Unjudgeable("the message cannot be searched")
    return ended.returncode == 0


@lru_cache(maxsize=1000)
def is_tame(pattern: str) -> bool:
    """Whether a regular expression has no repeat inside a repeat, and few repeats: it ends soon on any text."""
    if len(pattern) > 1000 or re.search(r"[*+}]\s*\)+\s*[*+{]", pattern) or re.search(r"\)[*+{]", pattern):
        return False
    if len(REPEAT.findall(pattern)) >= len(QUICK_CHARS) or re.search(r"\\\d|\(\?P=", pattern):
        return False
    if len(re.findall(r"(?<![*+?}(\\])\?", pattern)) > 10:
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
        if any(isinstance(x, int) and x.bit_length() > 4 * MAX_INTEGER_DIGITS for x in (a, b)):
            raise Unjudgeable("too large to be multiplied")
        return function(a, b)

    return apply


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "sorted": sorted, "set": hashed(set), "frozenset": hashed(frozenset), "list": list, "tuple": tuple,
    "dict": made_dict, "int": int, "float": float, "bool": bool, "str": str, "repr": repr, "abs": abs, "min": min, "max": max,
    "sum": total, "round": rounded,
    "all": all, "any": any, "approx": Approx, "almost": almost, "same_items": same_items, "search": search,
    "same_sequence": same_sequence, "loosely": loosely,
}  # fmt: skip
BUILTIN_FUNCTIONS = frozenset(FUNCTIONS) - {"approx", "almost", "same_items", "same_sequence", "search", "loosely"}
ASKS = {
    **dict.fromkeys(
        ("list", "tuple", "sorted", "set", "frozenset", "sum", "min", "max", "any", "all", "same_items"), "list"
    ),
    **{name: name for name in ("len", "dict", "str", "repr", "int", "float", "abs")},
}
"""Function → the view (`values.VIEWS`) that it takes of a value of another than a plain type."""
METHODS = frozenset(
    {"startswith", "endswith", "lower", "upper", "strip", "lstrip", "rstrip", "split", "splitlines", "rsplit", "count",
     "index", "find", "isdigit", "isalpha", "isupper", "islower", "keys", "values", "items", "get", "issubset",
     "issuperset", "isdisjoint", "title", "capitalize", "partition", "rpartition"}
)  # fmt: skip
RECEIVERS = (str, bytes, list, tuple, dict, set, frozenset, deque, MappingProxyType)
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
