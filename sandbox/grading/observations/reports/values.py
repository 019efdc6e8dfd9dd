"""Plain data as it crosses the border of a sandbox: encoded by exact type, decoded here within bounds.

`null`, booleans and strings stand for themselves; everything else is an object of one tag. Encoders take the contents
with the built-in types' own methods, never with those of the product (`__eq__`, `__repr__`, `__reduce__`, …).

| Tag | Value |
|---|---|
| `i` | integer, hexadecimal |
| `f` | float: `float.hex`, `nan`, `inf`, `-inf` |
| `l`, `t`, `S`, `F` | list, tuple, set, frozenset: items |
| `d` | dictionary: [key, value] pairs |
| `b`, `B` | bytes, bytearray: hexadecimal |
| `c` | complex: [real, imaginary] |
| `x` | a standard library value: [name of the constructor, arguments] |
| `s` | instance of a subclass of one of the above: {"t": type names, "v": value} |
| `k` | class: type names, its own first |
| `e` | exception: {"t": type names, "m": message} |
| `o` | anything else: {"t": type names, "n": identity, "b": truth or null} |
| `z` | cut off: too deep or too large |
| `w` | outermost alone: {"v": value, "a": [name, value] pairs}: what the value gave to built-in functions |
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import numbers
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

MAX_DEPTH = 40
MAX_NODES = 50_000
MAX_TEXT = 1_000_000
MAX_TYPES = 40
MAX_INTEGER_DIGITS = 100_000
"""Of an integer, hexadecimal."""
MAX_DIGITS = 10_000
"""Digits of a Decimal, and its largest exponent; of the parts of a Fraction, as bits four times as many. Both are small to
write and large to compute with."""
VIEWS = frozenset({"items", "len", "dict", "str", "repr", "int", "float", "abs", "list"})
"""`items`: what a container holds, a list or a dictionary. Any other: what the built-in function of that name gave."""
MAX_CLASHES = 100
"""Different members of one container that have the hash of another."""


class Unreadable(ValueError):
    """What was reported is not a value."""


@dataclass(frozen=True, slots=True)
class Types:
    """A class, as the qualified names of itself and its bases. Names of built-in types are theirs alone."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """An object of the product: its types, an identity within the run, and what `bool` gave (None: it raised)."""

    types: Types
    number: int
    truth: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Raised:
    types: Types
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A value that was too deep or too large to be reported."""


@dataclass(frozen=True, slots=True)
class Value:
    """A decoded value. A subclass's instance is its built-in content; `types` are then those of the subclass."""

    content: Any
    types: Types | None = None
    views: Mapping[str, Any] = field(default_factory=dict)
    """Of VIEWS: what the value gives to who asks, in plain data. An object's own `__len__` and `__iter__` may say what they like,
    as they may to the test: what they say is compared here."""


@dataclass(frozen=True, slots=True)
class LongRange:
    """A range of more than MAX_NODES numbers: compared, measured and indexed as it is, and never walked over."""

    span: range

    __iter__ = __reversed__ = None  # else Python walks over it by `__getitem__`

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.span)

    def __getitem__(self, key: Any) -> Any:
        found = self.span[key]
        return bounded_range(found) if isinstance(found, range) else found

    def __contains__(self, item: object) -> bool:
        if isinstance(item, int):
            return int(item) in self.span
        if isinstance(item, numbers.Number):
            raise TypeError("only integers are looked for in a long range")
        return False

    def __repr__(self) -> str:
        return repr(self.span)


Sequence.register(LongRange)


def bounded_range(found: range) -> range | LongRange:
    return LongRange(found) if len(found[: MAX_NODES + 1]) > MAX_NODES else found


def _decimal(text: str) -> decimal.Decimal:
    if len(text) > MAX_DIGITS:
        raise Unreadable("too large")
    found = decimal.Decimal(text)
    if found.is_finite() and abs(found.adjusted()) > MAX_DIGITS:
        raise Unreadable("too large")
    return found


def _fraction(numerator: int, denominator: int) -> fractions.Fraction:
    if max(numerator.bit_length(), denominator.bit_length()) > 4 * MAX_DIGITS:
        raise Unreadable("too large")
    return fractions.Fraction(numerator, denominator)


def _distinct(keys: list[Any], pairs: list[Any] | None = None) -> dict[Any, Any]:
    check_hashes(keys)
    return dict.fromkeys(keys) if pairs is None else dict(pairs)


STANDARD: dict[str, tuple[Callable[..., Any], type]] = {
    "datetime.date": (datetime.date, int),
    "datetime.datetime": (datetime.datetime, int),
    "datetime.time": (datetime.time, int),
    "datetime.timedelta": (datetime.timedelta, int),
    "decimal.Decimal": (_decimal, str),
    "fractions.Fraction": (_fraction, int),
    "pathlib.PurePosixPath": (PurePosixPath, str),
    "collections.deque": (deque, list),
    "dict_keys": (lambda items: _distinct(items).keys(), list),
    "dict_values": (lambda items: dict(enumerate(items)).values(), list),
    "dict_items": (lambda items: _distinct([key for key, _ in items], items).items(), list),
    "mappingproxy": (MappingProxyType, dict),
    "range": (lambda *bounds: bounded_range(range(*bounds)), int),
    "NotImplemented": (lambda: NotImplemented, int),
    "Ellipsis": (lambda: Ellipsis, int),
}
"""Name → what makes the value, and the type of its arguments."""


def decode(data: object) -> Value:
    """The value of an encoded one. Raises Unreadable for everything that no encoder writes."""
    budget = [MAX_NODES]
    types: Types | None = None
    asked: object = []
    if isinstance(data, dict) and set(data) == {"w"}:
        inner = _fields(data["w"], {"v", "a"})
        data, asked = inner["v"], inner["a"]
    if isinstance(data, dict) and set(data) == {"s"}:
        inner = _fields(data["s"], {"t", "v"})
        types, data = _types(inner["t"]), inner["v"]
    try:
        return Value(_decode(data, 0, budget), types, _views(asked, budget))
    except Unreadable:
        raise
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise Unreadable(f"not a value: {type(error).__name__}") from error


def _views(asked: object, budget: list[int]) -> dict[str, Any]:
    if not isinstance(asked, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in asked):
        raise Unreadable("what was asked for are pairs")
    if not all(isinstance(name, str) and name in VIEWS for name, _ in asked):
        raise Unreadable("nobody asks for that")
    return {name: _decode(found, 0, budget) for name, found in asked}


def is_plain(data: object) -> bool:
    """Whether an encoded value holds nothing but built-in and standard library data."""
    if isinstance(data, dict):
        return not (set(data) & {"o", "k", "e", "z", "w"}) and all(is_plain(item) for item in data.values())
    if isinstance(data, list):
        return all(is_plain(item) for item in data)
    return True


def is_exact(data: object) -> bool:
    """Whether an encoded value holds nothing but exact built-in types."""
    if isinstance(data, dict):
        return not (set(data) & {"o", "k", "e", "z", "s", "x", "w"}) and all(is_exact(item) for item in data.values())
    if isinstance(data, list):
        return all(is_exact(item) for item in data)
    return True


def _decode(data: object, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        raise Unreadable("too large")
    if data is None or isinstance(data, bool):
        return data
    if isinstance(data, str):
        if len(data) > MAX_TEXT:
            raise Unreadable("too large")
        return data
    if not isinstance(data, dict) or len(data) != 1:
        raise Unreadable(f"no value: {str(data)[:40]!r}")
    ((tag, body),) = data.items()
    decoder = DECODERS.get(tag)
    if decoder is None:
        raise Unreadable(f"no value: tag {str(tag)[:20]!r}")
    return decoder(body, depth + 1, budget)


def _items(body: object, depth: int, budget: list[int]) -> list[Any]:
    if not isinstance(body, list):
        raise Unreadable("items are a list")
    return [_decode(item, depth, budget) for item in body]


def _text(body: object) -> str:
    if not isinstance(body, str) or len(body) > MAX_TEXT:
        raise Unreadable("a text is missing")
    return body


def _integer(body: object, depth: int, budget: list[int]) -> int:
    text = _text(body)
    if len(text) > MAX_INTEGER_DIGITS:
        raise Unreadable("too large")
    return int(text, 16)


def _float(body: object, depth: int, budget: list[int]) -> float:
    return float.fromhex(_text(body)[:60])


def _dict(body: object, depth: int, budget: list[int]) -> dict[Any, Any]:
    if not isinstance(body, list):
        raise Unreadable("pairs are a list")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in body):
        raise Unreadable("a pair has two members")
    keys = _members([pair[0] for pair in body], depth, budget)
    return dict(zip(keys, (_decode(pair[1], depth, budget) for pair in body), strict=True))


def _members(body: object, depth: int, budget: list[int]) -> list[Any]:
    members = _items(body, depth, budget)
    check_hashes(members)
    return members


def check_hashes(members: Iterable[object]) -> None:
    """Many values with one hash would keep the host busy for a time that grows with their square. Raises Unreadable."""
    known: dict[int, object] = {}
    clashes = 0
    for member in members:
        other = known.setdefault(hash(member), member)
        if other is not member and other != member:
            clashes += 1
            if clashes > MAX_CLASHES:
                raise Unreadable("too many values of one hash")


def _complex(body: object, depth: int, budget: list[int]) -> complex:
    real, imaginary = _items(body, depth, budget)
    return complex(float(real), float(imaginary))


def _standard(body: object, depth: int, budget: list[int]) -> Any:
    if not isinstance(body, list) or len(body) != 2 or body[0] not in STANDARD:
        raise Unreadable("not a value of the standard library")
    make, kind = STANDARD[body[0]]
    arguments = _items(body[1], depth, budget)
    if not all(type(argument) is kind for argument in arguments):
        raise Unreadable("not arguments of the standard library")
    return make(*arguments)


def _subclass(body: object, depth: int, budget: list[int]) -> Any:
    inner = _fields(body, {"t", "v"})
    return _decode(inner["v"], depth, budget)


def _opaque(body: object, depth: int, budget: list[int]) -> Opaque:
    inner = _fields(body, {"t", "n", "b"})
    number, truth = inner["n"], inner["b"]
    if isinstance(number, bool) or not isinstance(number, int) or not (truth is None or isinstance(truth, bool)):
        raise Unreadable("not an object")
    return Opaque(_types(inner["t"]), number, truth)


def _raised(body: object, depth: int, budget: list[int]) -> Raised:
    inner = _fields(body, {"t", "m"})
    return Raised(_types(inner["t"]), _text(inner["m"]))


def _types(body: object) -> Types:
    if not isinstance(body, list) or len(body) > MAX_TYPES or not all(isinstance(name, str) for name in body):
        raise Unreadable("types are names")
    return Types(tuple(body))


def _fields(body: object, names: set[str]) -> dict[str, Any]:
    if not isinstance(body, dict) or set(body) != names:
        raise Unreadable(f"an object of {', '.join(sorted(names))} is missing")
    return body


DECODERS: dict[str, Callable[[object, int, list[int]], Any]] = {
    "i": _integer,
    "f": _float,
    "l": _items,
    "t": lambda body, depth, budget: tuple(_items(body, depth, budget)),
    "S": lambda body, depth, budget: set(_members(body, depth, budget)),
    "F": lambda body, depth, budget: frozenset(_members(body, depth, budget)),
    "d": _dict,
    "b": lambda body, depth, budget: bytes.fromhex(_text(body)),
    "B": lambda body, depth, budget: bytearray.fromhex(_text(body)),
    "c": _complex,
    "x": _standard,
    "s": _subclass,
    "k": lambda body, depth, budget: _types(body),
    "e": _raised,
    "o": _opaque,
    "z": lambda body, depth, budget: Cut(),
}
