"""Bits of expected values, and of the hidden calls of a task: what work would have to guess without knowing them."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Collection
from typing import Any

from sandbox.tasks.spec import CallsVerifier

MIN_ENTROPY = 4.0
"""Bits that a task must ask for before it may train: blind work is then right once in 16 attempts at most, which is no
more than once in the usual group, so guessing is not what a group's advantages reward."""
MAX_VALUE_BITS = 24.0
RAISES_BITS = 2.0
"""A guess among the few exceptions that are common."""


def calls_entropy(verifier: CallsVerifier, missed: Collection[int]) -> float:
    """Bits of hidden calls. `missed`: numbers of the cases that the untouched checkout does not meet.

    Each different answer to these counts once, because one guess serves all cases that share it. Where others are met
    already and must stay so, so does telling a case that must change from them. Of an answer that is one of the arguments,
    or a part of one, only the choice among these counts.
    """
    if not missed:
        return 0.0
    answers: dict[str, float] = {}
    for number in missed:
        arguments, expected = verifier.cases[number]
        bits = min(answer_bits(expected), choice_bits(arguments, expected))
        answers[expected] = min(bits, answers.get(expected, bits))
    met = len({arguments for number, (arguments, _) in enumerate(verifier.cases) if number not in missed})
    return sum(answers.values()) + math.log2(1 + met)


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


def answer_bits(expected: str) -> float:
    """Bits of an expected `repr`; of one that is no literal, those of the texts and numbers in it."""
    try:
        return value_bits(ast.literal_eval(expected))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        parts = SPOKEN.search(expected.replace("'", '"'))
        return RAISES_BITS if parts is None else text_bits(f"({expected})".replace("'", '"'))


SPOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|\b(?:true|false|null|undefined|nil|None)\b"""
)


def text_bits(text: str) -> float:
    """Bits of a value of JavaScript, Go or Rust that is told as a text (`observations/brace_tests/braces.py`).

    Of a structure its texts, numbers and truths count, and neither its types nor its fields.
    """
    if not re.search(r"[\[\](){}\"]", text) and SPOKEN.fullmatch(text) is None:
        return value_bits(text)
    bits = 0.0
    for part in SPOKEN.finditer(text):
        if part["text"]:
            bits += value_bits(part["text"][1:-1])
        elif part["number"]:
            whole = part["number"].lstrip("-")
            bits += value_bits(int(whole)) if whole.isdigit() and len(whole) < 20 else 8.0
        else:
            bits += 1.0
    return min(MAX_VALUE_BITS, max(1.0, bits))


def value_bits(value: Any) -> float:
    """About how many bits a value of this type and size has: a number has those of its size, a text two a character."""
    match value:
        case bool() | None:
            return 1.0
        case int():
            return min(MAX_VALUE_BITS, math.log2(2 * abs(value) + 2)) if abs(value) < 1 << 64 else MAX_VALUE_BITS
        case float():
            return 8.0
        case str() | bytes():
            return min(MAX_VALUE_BITS, 1.0 + 2.0 * len(value))
        case list() | tuple() | set() | frozenset():
            return min(MAX_VALUE_BITS, 1.0 + _items_bits(value))
        case dict():
            parts = [*value, *value.values()]
            return min(MAX_VALUE_BITS, 1.0 + sum(value_bits(part) for part in parts))
    return 4.0


def _items_bits(items: Collection[Any]) -> float:
    """Bits of the items of a collection: each that differs counts once, and their arrangement as far as they are mixed."""
    times = Counter(map(repr, items))
    bits = {text: value_bits(item) for text, item in {repr(item): item for item in items}.items()}
    mixed = sum(count * math.log2(len(items) / count) for count in times.values())
    return min(sum(count * bits[text] for text, count in times.items()), sum(bits.values()) + mixed)
