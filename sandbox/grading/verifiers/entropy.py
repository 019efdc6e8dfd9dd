"""Bits of a task's expectations that work would have to guess without knowing them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from sandbox.grading.observations.brace_tests.braces import is_text
from sandbox.grading.observations.plan import Plan
from sandbox.grading.observations.reports.base import Expected, Site
from sandbox.grading.observations.reports.values import Types, Unreadable, Value, decode
from sandbox.tasks.entropy import RAISES_BITS, SPOKEN, Bag, Guess, Shown, shown_places
from sandbox.tasks.spec import SuiteVerifier

PATTERN_BITS = 4.0
QUOTED = re.compile(r"(?P<quote>['\"`])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)")


def task_entropy(verifier: SuiteVerifier, plan: Plan | None, missed: Mapping[str, set[int]]) -> float:
    """Bits of the tests that must start to pass.

    `missed`: delivered test id → the assertions that the untouched checkout does not meet. Only these need a guess: what
    is right already needs none. One guess serves all assertions that ask for the same, so each demand counts once, and of values
    that share their parts each part (`Guess`).

    Assertions that are decided in the sandbox count nothing, in any language: objects that are equal to what any of several
    candidates would give meet the real test and none of its siblings, and hold the same wrong values whatever is asked.
    """
    if plan is None:
        return 0.0
    asked = [
        one
        for test_id in verifier.fail_to_pass
        for one in plan.expected.get(plan.ids[test_id], ())
        if one.site in missed.get(plan.ids[test_id], ())
    ]
    return _bits_of(asked, plan, _shown(plan), Guess())


def unasked(verifier: SuiteVerifier, plan: Plan, missed: Mapping[str, set[int]]) -> tuple[str, ...]:
    """Tests that must start to pass without asking for anything themselves: neither they nor a part of them make a report that
    the untouched checkout misses. Whatever the others ask for, work that makes an assertion pass has these for nothing."""
    asking = {name for name, sites in missed.items() if sites}
    return tuple(
        test_id
        for test_id in verifier.fail_to_pass
        if not any(name == plan.ids[test_id] or name.startswith(f"{plan.ids[test_id]}/") for name in asking)
    )


def most_bits(plan: Plan) -> dict[str, float]:
    """Bits that each test of a plan asks for if none of its assertions is met and they share nothing. `task_entropy` is at most
    their sum."""
    shown = _shown(plan)
    return {test_id: _bits_of(plan.expected.get(name, ()), plan, shown, None) for test_id, name in plan.ids.items()}


def _shown(plan: Plan) -> dict[str, frozenset[str]]:
    return {path: shown_values(path, text) for path, text in plan.files.items()}


def _bits_of(asked: Iterable[Expected], plan: Plan, shown: Mapping[str, frozenset[str]], guess: Guess | None) -> float:
    """Without a `guess`, each assertion is a guess of its own."""
    sites = {site.number: site for site in plan.sites}
    seen = {(sites[one.site].kind, sites[one.site].condition, repr(sorted(one.values.items()))): one for one in asked}
    bits = {"value": 0.0, "predicate": 0.0, "raises": 0.0}
    for one in seen.values():
        site = sites[one.site]
        kind, found = kind_of(site, one), site_bits(site, one, shown.get(site.path, frozenset()), guess)
        bits[kind] = bits[kind] + found if kind == "value" else max(bits[kind], found)
    asks_message = any(sites[one.site].kind == "raises" and sites[one.site].condition for one in seen.values())
    return sum(bits.values()) + PATTERN_BITS * asks_message + (guess.choices() if guess else 0.0)


def kind_of(site: Site, expected: Expected) -> Literal["value", "predicate", "raises"]:
    """What a guess must meet. One answer may meet all predicates at once, as infinity meets every `>`, and one class of
    exceptions may be of every type, its one message holding what each pattern looks for: of each of these kinds a task has the
    bits of one demand, however many it makes.
    """
    if site.kind == "raises":
        return "raises"
    sides = _sides(site)
    if not sides:
        return "predicate"
    known = [value for side in sides if (value := _known(side, expected)) is not None]
    return "raises" if known and isinstance(known[0].content, Types) else "value"


def _sides(site: Site) -> tuple[ast.expr, ...]:
    """Both sides of what asks for a value; none for another condition."""
    match ast.parse(site.condition, mode="eval").body:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            return left, right
        case ast.Call(func=ast.Name(id="almost" | "same_items" | "same_sequence" | "loosely"), args=[left, right]):
            return left, right
    return ()


def site_bits(site: Site, expected: Expected, shown: frozenset[str] = frozenset(), guess: Guess | None = None) -> float:
    """Bits that one expectation adds to a guess: those of the value that is asked for, or one where only a truth is. A pattern
    of a message counts for itself (`task_entropy`).

    None where both sides of an equality are computed inside: the work reports both, and may read one from the other.
    `shown` are the values that the delivered file itself holds (`shown_values`): of one of these only the choice counts.
    """
    if site.kind == "raises":
        return RAISES_BITS
    sides = _sides(site)
    if not sides:
        return 1.0
    known = [value for side in sides if (value := _known(side, expected)) is not None]
    if not known:
        return 0.0
    content = known[0].content
    if isinstance(content, Types):
        return RAISES_BITS
    told = is_text(site) and isinstance(content, str)
    is_shown = (content if told else repr(content)) in shown
    if is_shown and site.beside:
        return 0.0  # a variable of the calling test holds it
    guess = guess or Guess()
    asked = _asked(site)
    if told and is_shown and not content.isnumeric():
        asked = {key: ["the file"] for key in shown}  # a round trip, most often: one guess meets all of them
    most = min(_bits_within(site, side, content) for side in sides)
    if is_shown and (content if told else repr(content)) not in asked:
        most = min(most, math.log2(1 + len(shown)))
    if told and (not site.path.endswith(".go") or GO_VALUE.match(content) or SPOKEN.fullmatch(content)):
        return guess.text(content, most, shown=asked)
    return guess.value(_unordered(site, content), most, shown=asked)


GO_VALUE = re.compile(r"(?:\[\d*\]|map\[|&|\*|[\w./*]+\{|\(|struct\b|func\b|<nil>)[\s\S]*[\]})>]\Z")
"""How Go tells anything but a text, a number or a truth."""


def _asked(site: Site) -> Shown:
    """The values that the question itself holds, which work reads in its call, with their places."""
    found: dict[str, Sequence[str]] = {}
    for leaf in site.leaves if not is_text(site) else ():
        if leaf.observed:
            found |= shown_places(leaf.source)
    return found


def _unordered(site: Site, content: Any) -> Any:
    """What `assertCountEqual` asks for has no order."""
    return Bag(content) if site.condition.startswith("same_items(") and isinstance(content, list | tuple) else content


def _bits_within(site: Site, side: ast.expr, content: object) -> float:
    """Bits of a number that `approx` or `almost` asks for: how often its tolerance fits between zero and the number. Infinite
    for any other side."""
    if not isinstance(content, int | float) or not math.isfinite(content):
        return math.inf
    whole = ast.parse(site.condition, mode="eval").body
    if isinstance(whole, ast.Call):
        return _bits_almost(whole, content)
    if not isinstance(side, ast.Call):
        return math.inf
    given = dict(zip(("rel", "abs"), side.args[1:], strict=False)) | {word.arg: word.value for word in side.keywords}
    try:
        relative, absolute = (
            None if (part := given.get(name)) is None else float(ast.literal_eval(part)) for name in ("rel", "abs")
        )
    except (ValueError, TypeError, SyntaxError):
        return 0.0  # nobody knows how wide it is
    if relative is None and absolute is None:
        relative = 1e-6
    tolerance = max((relative or 0.0) * abs(content), absolute or 1e-12)
    return max(0.0, math.log2((abs(content) + 1.0) / tolerance)) if math.isfinite(tolerance) else 0.0


def _bits_almost(call: ast.Call, content: float) -> float:
    try:
        given = {word.arg: float(ast.literal_eval(word.value)) for word in call.keywords}
    except (ValueError, TypeError, SyntaxError):
        return 0.0  # nobody knows how wide it is
    tolerance = given.get("delta", 0.5 * 10.0 ** -min(given.get("places", 7.0), 300.0))
    return max(0.0, math.log2((abs(content) + 1.0) / max(tolerance, 1e-12)))


def shown_values(path: str, text: str) -> frozenset[str]:
    """Values that a delivered test file writes out, with the parts of each, as `repr` (other languages: as they are told).

    A round trip expects one of its own inputs, which the work reads in its call.
    """
    if not path.endswith(".py"):
        texts = {part["text"] for part in QUOTED.finditer(text)}
        return frozenset({part.group() for part in SPOKEN.finditer(text)} | texts | {f'"{part}"' for part in texts})
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    return frozenset(repr(value) for value in _literals(tree))


def _literals(tree: ast.AST) -> Iterator[object]:
    numbers = {
        id(node.args[0]) for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args and _reports(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.UnaryOp | ast.BinOp):
            if id(node) in numbers:
                continue  # the number of a site
            try:
                yield ast.literal_eval(node)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue


def _reports(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id.startswith("_oc_")


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
