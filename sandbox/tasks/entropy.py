"""Bits of expected values, and of the hidden calls of a task: what work would have to guess without knowing them."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sandbox.tasks.spec import CallsVerifier

MIN_ENTROPY = 4.0
"""Bits that a task must ask for before it may train: blind work is then right once in 16 attempts at most, which is no
more than once in the usual group, so guessing is not what a group's advantages reward."""
MAX_VALUE_BITS = 24.0
RAISES_BITS = 2.0
"""A guess among the few exceptions that are common."""


def calls_entropy(verifier: CallsVerifier, missed: Collection[int]) -> float:
    """Bits of hidden calls. `missed`: numbers of the cases that the untouched checkout does not meet.

    Each different part of the answers to these counts once, because one guess serves all cases that share it. Where others
    are met already and must stay so, so does telling a case that must change from them. Of what stands in the arguments only
    the choice of its place counts (`shown_places`).
    """
    if not missed:
        return 0.0
    guess = Guess()
    bits = sum(
        guess.answer(expected, shown=shown_places(arguments))
        for arguments, expected in (verifier.cases[number] for number in sorted(missed))
    )
    met = len({arguments for number, (arguments, _) in enumerate(verifier.cases) if number not in missed})
    return bits + guess.choices() + math.log2(1 + met)


Shown = Mapping[str, Sequence[str]]
"""`repr` of a value that the work can read where it is asked → the places where it stands there."""


def shown_places(expression: str) -> Shown:
    """The literals in an expression, with the places of each: `(["a"], 1)` has `'a'` at `0.0` and `1` at `1`."""
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, list[str]] = {}
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, place = waiting.pop(0)
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found.setdefault(repr(ast.literal_eval(node)), []).append(place)
        waiting += [(child, f"{place}.{number}") for number, child in enumerate(ast.iter_child_nodes(node))]
    return found


SPOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|\b(?:true|false|null|undefined|nil|None)\b"""
)


class Bag(list[Any]):
    """Items in no order."""


class Guess:
    """What work without knowledge would have to guess, told bit by bit.

    Answers share their parts: who guesses `True` has also guessed most of `[True]` and of `[True, True]`. So a part costs its
    bits at its first use alone, a kind of collection costs one, and each answer after that only the arrangement of its parts.
    An answer that stands in its question costs the choice of its place, which one guess makes for all: "the first argument".
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._chosen: list[str] = []
        """The place of each answer that stood in its question."""
        self._paid = self._most = 0.0
        """What these have cost, and what they would have without sharing."""

    def answer(self, expected: str, *, shown: Shown | None = None) -> float:
        """Bits that an expected `repr` adds; of one that is no literal, those of the texts and numbers in it."""
        try:
            value = ast.literal_eval(expected)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            told = expected.replace("'", '"')
            if SPOKEN.search(told) is None:
                return self._new(expected, RAISES_BITS)
            return self.text(f"({told})")
        return self.value(value, shown=shown)

    def value(self, value: Any, at_most: float = math.inf, *, shown: Shown | None = None) -> float:
        """Bits that a Python value adds. `shown`: what the question itself holds."""
        name, shown = repr(value), shown or {}
        parts = _arranged(value)
        if name in shown:
            return self._choice(name, min(parts.spelled, MAX_VALUE_BITS, at_most), shown)
        added = sum(self._part(part, bits, shown) for part, bits in parts.parts.items())
        return self._whole(name, min(added + parts.arrangement, parts.spelled, MAX_VALUE_BITS, at_most))

    def text(self, text: str, at_most: float = math.inf, *, shown: Shown | None = None) -> float:
        """Bits that a value of JavaScript, Go or Rust adds, which is told as a text (`observations/brace_tests/braces.py`).

        Of a structure its texts, numbers and truths count, and neither its types nor its fields.
        """
        if not re.search(r"[\[\](){}\"]", text) and SPOKEN.fullmatch(text) is None:
            return self.value(text, at_most, shown=shown)
        parts, shown = list(_spoken(text)) or [(text, 1.0)], shown or {}
        spelled = min(sum(bits for _, bits in parts), MAX_VALUE_BITS, at_most)
        if text in shown:
            return self._choice(text, spelled, shown)
        added = sum(self._part(name, bits, shown) for name, bits in dict(parts).items())
        return self._whole(text, min(added + _mixed(name for name, _ in parts), spelled))

    def choices(self) -> float:
        """Bits of telling which of the answers that stood in their questions stands where; none if all stand in one place."""
        return max(0.0, min(_mixed(self._chosen), self._most - self._paid))

    def _choice(self, name: str, bits: float, shown: Shown) -> float:
        cost = self._part(name, bits, shown)
        places = shown[name]
        self._chosen.append(next((place for place in places if place in self._chosen), places[0]))
        self._paid += cost
        self._most += min(bits, math.log2(1 + len(shown)))
        return cost

    def _part(self, name: str, bits: float, shown: Shown) -> float:
        if name not in shown:
            return self._new(name, bits)
        if any(f"place {place}" in self._known for place in shown[name]):
            return 0.0
        return min(self._new(name, bits), self._new(f"place {shown[name][0]}", math.log2(1 + len(shown))))

    def _new(self, name: str, bits: float) -> float:
        if name in self._known:
            return 0.0
        self._known.add(name)
        return bits

    def _whole(self, text: str, bits: float) -> float:
        """Nothing for an answer that came before."""
        return self._new(f"whole {text}", bits)


def value_bits(value: Any) -> float:
    """About how many bits a value of this type and size has: a number has those of its size, a text two a character."""
    return Guess().value(value)


def answer_bits(expected: str) -> float:
    """Bits of one expected `repr`."""
    return Guess().answer(expected)


def text_bits(text: str) -> float:
    """Bits of one value that is told as a text."""
    return Guess().text(text)


class _Arranged(NamedTuple):
    parts: dict[str, float]
    """Part or kind of collection → its bits."""
    arrangement: float
    spelled: float
    """Bits of the value if each part is guessed wherever it stands."""


def _arranged(value: Any) -> _Arranged:
    match value:
        case Bag():
            items, ordered = list(value), []
        case list() | tuple():
            items = ordered = list(value)
        case dict():
            items, ordered = [*value, *value.values()], list(value.values())
        case set() | frozenset():
            items, ordered = list(value), []
        case _:
            bits = _scalar_bits(value)
            return _Arranged({repr(value): bits}, 0.0, bits)
    inner = {repr(item): _arranged(item) for item in items}
    parts = {type(value).__name__: 1.0}
    for one in inner.values():
        parts |= one.parts
    arrangement = _mixed(map(repr, ordered)) + sum(one.arrangement for one in inner.values())
    return _Arranged(parts, arrangement, 1.0 + sum(inner[repr(item)].spelled for item in items))


def _mixed(items: Iterable[str]) -> float:
    """Bits of the order of these: none where all are alike."""
    times = Counter(items)
    return sum(count * math.log2(times.total() / count) for count in times.values())


def _scalar_bits(value: Any) -> float:
    match value:
        case bool() | None:
            return 1.0
        case int():
            return min(MAX_VALUE_BITS, math.log2(2 * abs(value) + 2)) if abs(value) < 1 << 64 else MAX_VALUE_BITS
        case float():
            return 8.0
        case str() | bytes():
            signs = [str(sign) for sign in value]
            return min(MAX_VALUE_BITS, 1.0 + min(2.0 * len(signs), 2.0 * len(set(signs)) + _mixed(signs)))
    return 4.0


def _spoken(text: str) -> Iterator[tuple[str, float]]:
    for part in SPOKEN.finditer(text):
        if part["text"]:
            yield part.group(), _scalar_bits(part["text"][1:-1])
        elif part["number"]:
            whole = part["number"].lstrip("-")
            yield part.group(), _scalar_bits(int(whole)) if whole.isdigit() and len(whole) < 20 else 8.0
        else:
            yield part.group(), 1.0
