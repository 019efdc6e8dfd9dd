"""Bits of expected values, and of the hidden calls of a task: what work would have to guess without knowing them."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
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
    are met already and must stay so, so does telling a case that must change from them. Of an answer that is one of the
    arguments, or a part of one, only the choice among these counts.
    """
    if not missed:
        return 0.0
    guess = Guess()
    bits = sum(
        guess.answer(expected, choice_bits(arguments, expected)) for arguments, expected in _cases(verifier, missed)
    )
    met = len({arguments for number, (arguments, _) in enumerate(verifier.cases) if number not in missed})
    return bits + math.log2(1 + met)


def _cases(verifier: CallsVerifier, numbers: Collection[int]) -> list[tuple[str, str]]:
    return [verifier.cases[number] for number in sorted(numbers)]


def choice_bits(arguments: str, expected: str) -> float:
    """Bits of choosing the expected value among those that the arguments write out; infinite where it is none of them."""
    try:
        tree = ast.parse(arguments, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return math.inf
    shown = set()
    for node in ast.walk(tree):
        try:
            shown.add(repr(ast.literal_eval(node)))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return math.log2(1 + len(shown)) if expected in shown else math.inf


SPOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|\b(?:true|false|null|undefined|nil|None)\b"""
)


class Guess:
    """What work without knowledge would have to guess, told bit by bit.

    Answers share their parts: who guesses `True` has also guessed most of `[True]` and of `[True, True]`. So a part costs its
    bits at its first use alone, a kind of collection costs one, and each answer after that only the arrangement of its parts.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def answer(self, expected: str, at_most: float = math.inf) -> float:
        """Bits that an expected `repr` adds; of one that is no literal, those of the texts and numbers in it."""
        try:
            value = ast.literal_eval(expected)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            told = expected.replace("'", '"')
            if SPOKEN.search(told) is None:
                return min(at_most, self._new(expected, RAISES_BITS))
            return self.text(f"({told})", at_most)
        return self.value(value, at_most)

    def value(self, value: Any, at_most: float = math.inf) -> float:
        """Bits that a Python value adds."""
        parts = _arranged(value)
        added = sum(self._new(name, bits) for name, bits in parts.parts.items())
        return self._whole(repr(value), min(added + parts.arrangement, parts.spelled, MAX_VALUE_BITS, at_most))

    def text(self, text: str, at_most: float = math.inf) -> float:
        """Bits that a value of JavaScript, Go or Rust adds, which is told as a text (`observations/brace_tests/braces.py`).

        Of a structure its texts, numbers and truths count, and neither its types nor its fields.
        """
        if not re.search(r"[\[\](){}\"]", text) and SPOKEN.fullmatch(text) is None:
            return self.value(text, at_most)
        parts = list(_spoken(text)) or [(text, 1.0)]
        added = sum(self._new(name, bits) for name, bits in dict(parts).items())
        spelled = sum(bits for _, bits in parts)
        return self._whole(text, min(added + _mixed(name for name, _ in parts), spelled, MAX_VALUE_BITS, at_most))

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
            signs = [repr(sign) for sign in value]
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
