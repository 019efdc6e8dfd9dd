"""Two turns side by side: whether they are identical, and otherwise what differs, marked in their texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from composer_web.rollouts.trajectory.transcript import CallView, TurnView

MAX_WORDS = 1_500
"""Words of a text that are compared one by one; a longer one is compared by lines."""
MAX_LINES = 3_000
WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True)
class Block:
    """Turn `first` of two rollouts, or the identical turns `first` to `last`, folded."""

    first: int
    last: int
    rows: list[tuple[TurnView | None, TurnView | None]]
    same: bool

    @property
    def brief(self) -> str:
        return ", ".join(left.brief for left, _ in self.rows if left)


def blocks(rows: Sequence[tuple[TurnView | None, TurnView | None]], first: int) -> list[Block]:
    """Rows from turn `first` on, with identical neighbours folded and differences marked."""
    found: list[Block] = []
    for index, (left, right) in enumerate(rows, first):
        if left and right and _content(left) == _content(right):
            if found and found[-1].same:
                found[-1] = Block(found[-1].first, index, [*found[-1].rows, (left, right)], True)
            else:
                found.append(Block(index, index, [(left, right)], True))
        elif left and right:
            found.append(Block(index, index, [marked(left, right)], False))
        else:
            found.append(Block(index, index, [(left, right)], False))
    return found


def _content(turn: TurnView) -> tuple[object, ...]:
    """What a turn says and does, without its times and tokens."""
    calls = tuple((call.name, call.arguments, call.diff, call.output, call.error) for call in turn.calls)
    return turn.text, turn.problem, turn.asked, calls


def marked(left: TurnView, right: TurnView) -> tuple[TurnView, TurnView]:
    """Both turns with `<mark>` around what the other one does not have."""
    texts = _both(left.text, right.text)
    calls = [_call(a, b) for a, b in zip_longest(left.calls, right.calls)]
    return (
        replace(left, text=texts[0], calls=tuple(a for a, _ in calls if a)),
        replace(right, text=texts[1], calls=tuple(b for _, b in calls if b)),
    )


def _call(left: CallView | None, right: CallView | None) -> tuple[CallView | None, CallView | None]:
    if left is None or right is None or left.name != right.name:
        return left, right
    others = dict(right.arguments)
    pairs = {name: _both(value, others[name]) for name, value in left.arguments if name in others}
    outputs = _both(left.output, right.output)
    return (
        replace(left, arguments=_with(left, pairs, 0), output=outputs[0]),
        replace(right, arguments=_with(right, pairs, 1), output=outputs[1]),
    )


def _with(call: CallView, pairs: dict[str, tuple[str, str]], side: int) -> tuple[tuple[str, str], ...]:
    return tuple((name, pairs[name][side] if name in pairs else value) for name, value in call.arguments)


def _both(left: str, right: str) -> tuple[str, str]:
    if left == right or not left or not right:
        return left, right
    a, b = WORDS.findall(left), WORDS.findall(right)
    if max(len(a), len(b)) > MAX_WORDS:
        a, b = left.splitlines(keepends=True), right.splitlines(keepends=True)
    if max(len(a), len(b)) > MAX_LINES:
        return left, right
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return (
        _html((tag, "".join(a[start:end])) for tag, start, end, _, _ in codes),
        _html((tag, "".join(b[start:end])) for tag, _, _, start, end in codes),
    )


def _html(pieces: Iterator[tuple[str, str]]) -> SafeString:
    return format_html_join(
        "",
        "{}",
        (
            (text if tag == "equal" else format_html('<mark class="differs">{}</mark>', text),)
            for tag, text in pieces
            if text
        ),
    )
