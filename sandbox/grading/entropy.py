"""Bits of a task's expectations that work would have to guess without knowing them."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence

from sandbox.grading.canaries.base import Language, Twin
from sandbox.grading.observations.base import Expected, Site
from sandbox.grading.observations.braces import is_text
from sandbox.grading.observations.plan import Plan
from sandbox.grading.observations.values import Types, Unreadable, Value, decode
from sandbox.tasks.entropy import RAISES_BITS, text_bits, value_bits
from sandbox.tasks.spec import SuiteVerifier

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
                if isinstance(content, Types):
                    return RAISES_BITS
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
