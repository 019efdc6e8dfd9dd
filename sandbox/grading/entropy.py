"""Bits of a task's expectations that work would have to guess without knowing them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sandbox.grading.canaries.base import Language, Twin
from sandbox.grading.observations.base import Expected, Site
from sandbox.grading.observations.braces import is_text
from sandbox.grading.observations.plan import Plan
from sandbox.grading.observations.values import Types, Unreadable, Value, decode
from sandbox.tasks.spec import CallsVerifier, SuiteVerifier

MIN_ENTROPY = 4.0
"""Bits that a task must ask for before it may train: blind work is then right once in 16 attempts at most, which is no
more than once in the usual group, so guessing is not what a group's advantages reward."""
MAX_VALUE_BITS = 24.0
RAISES_BITS = 2.0
"""A guess among the few exceptions that are common."""
PATTERN_BITS = 4.0


def task_entropy(
    verifier: SuiteVerifier,
    plan: Plan | None,
    twins: Sequence[Twin],
    language: Language,
    missed: Mapping[str, set[int]],
) -> float:
    """Bits of the tests that must start to pass.

    `missed`: delivered test id → the assertions that the untouched checkout does not meet. Only these need a guess: what
    is right already needs none. Assertions that are decided in the sandbox count by their twins: one in the size of each
    cluster.
    """
    bits = 0.0
    if plan is not None:
        sites = {site.number: site for site in plan.sites}
        seen = {
            (one.site, repr(sorted(one.values.items()))): one
            for test_id in verifier.fail_to_pass
            for one in plan.expected.get(plan.ids[test_id], ())
            if one.site in missed.get(plan.ids[test_id], ())
        }
        bits += sum(site_bits(sites[one.site], one) for one in seen.values())
    return bits + cluster_bits(verifier, plan, twins, language)


def calls_entropy(verifier: CallsVerifier, missed: Collection[int]) -> float:
    """Bits of hidden calls. `missed`: numbers of the cases that the untouched checkout does not meet.

    Each different answer to these counts once, because one guess serves all cases that share it. Where others are met
    already and must stay so, so does telling a case that must change from them, as for the real test among its twins.
    """
    if not missed:
        return 0.0
    answers = {verifier.cases[number][1] for number in missed}
    met = len({arguments for number, (arguments, _) in enumerate(verifier.cases) if number not in missed})
    return sum(map(answer_bits, answers)) + math.log2(1 + met)


def answer_bits(expected: str) -> float:
    """Bits of an expected `repr`; of one that is no literal, those of the texts and numbers in it."""
    try:
        return value_bits(ast.literal_eval(expected))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        parts = SPOKEN.search(expected.replace("'", '"'))
        return RAISES_BITS if parts is None else text_bits(f"({expected})".replace("'", '"'))


def cluster_bits(verifier: SuiteVerifier, plan: Plan | None, twins: Sequence[Twin], language: Language) -> float:
    """Bits of telling the real member of each cluster of an expected test; baits of observed tests count nothing."""
    ids = verifier.fail_to_pass if plan is None else [plan.ids[test_id] for test_id in verifier.fail_to_pass]
    places = {(place.where, place.names) for place in map(language.parse, ids)}
    clusters: dict[tuple[str, tuple[str, ...]], int] = {}
    for twin in twins:
        if not twin.bait and (language.where(twin.path), twin.names) in places:
            clusters[twin.path, twin.names] = clusters.get((twin.path, twin.names), 0) + 1
    return sum(math.log2(1 + count) for count in clusters.values())


def site_bits(site: Site, expected: Expected) -> float:
    """Bits of one expectation: those of the value that is asked for, or one where only a truth is."""
    if site.kind == "raises":
        return RAISES_BITS + (PATTERN_BITS if site.condition else 0.0)
    match ast.parse(site.condition, mode="eval").body:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            known = [value for side in (left, right) if (value := _known(side, expected)) is not None]
            if known:
                content = known[0].content
                return text_bits(content) if is_text(site) and isinstance(content, str) else value_bits(content)
    return 1.0


def _known(node: ast.expr, expected: Expected) -> Value | None:
    """The value of a withheld or written-out side; None for what the work reports."""
    match node:
        case ast.Name(id=name) if name[1:].isdigit() and int(name[1:]) in expected.values:
            try:
                return decode(expected.values[int(name[1:])])
            except Unreadable:
                return None
        case ast.Call(func=ast.Name(id="approx"), args=[inner, *_]):
            return _known(inner, expected)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            inside = [_known(part, expected) for part in parts]
            return None if None in inside else Value([part.content for part in inside if part is not None])
    try:
        return Value(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


SPOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|\b(?:true|false|null|undefined|nil|None)\b"""
)


def text_bits(text: str) -> float:
    """Bits of a value of JavaScript, Go or Rust that is told as a text (`observations/braces.py`).

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
            return min(MAX_VALUE_BITS, 1.0 + sum(value_bits(item) for item in value))
        case dict():
            parts = [*value, *value.values()]
            return min(MAX_VALUE_BITS, 1.0 + sum(value_bits(part) for part in parts))
        case Types():
            return RAISES_BITS
    return 4.0
