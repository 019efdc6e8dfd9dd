"""A trajectory as shown on the page: truncated text, one line per call, and a notice for everything omitted.

A model or a repository wrote everything in a trajectory: it is plain text here, and templates escape it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import DiffLexer

from composer_web.rollouts.models import Finding
from composer_web.rollouts.trajectory import edits, tool_colours
from composer_web.rollouts.trajectory.trajectory_store import WINDOW, Reading, TurnFacts
from sandbox.harness.types import ToolCall, ToolResult
from trainer.types import Turn

MAX_OUTPUT = 6_000
"""Maximum characters of a text in the transcript. A full turn, on request, shows `WHOLE` times as much."""
MAX_TEXT = 6_000
MAX_ARGUMENT = 4_000
WHOLE = 40
MAX_CALLS = 100
MAX_PATCH = 200_000
MAX_CASES = 300


@dataclass(frozen=True)
class CallView:
    name: str
    brief: str
    arguments: tuple[tuple[str, str], ...]
    output: str
    error: str
    seconds: float | None
    cut: str
    has_result: bool
    diff: SafeString | str = ""
    """What the call changes, in place of the arguments that it is made from."""
    colour: int = 0
    """Class `tool-N` of the tool, the same on every page (`tool_colours.py`)."""


@dataclass(frozen=True)
class TurnView:
    index: int
    segment: int
    summary: bool
    text: str
    calls: tuple[CallView, ...]
    problem: str
    """The harness's answer to a call that did not parse."""
    tokens: int
    token_start: int
    thinking: int
    generate_seconds: float
    tool_seconds: float
    asked: str
    """The user's message after the turn."""
    snapshot: str
    short: bool
    """Whether text is truncated here that the full turn shows."""
    calls_cut: int

    @property
    def number(self) -> int:
        return self.index + 1

    @property
    def failed(self) -> bool:
        return bool(self.problem) or any(call.error for call in self.calls)

    @property
    def only_calls(self) -> bool:
        """Whether the text consists only of the calls shown below it."""
        return bool(self.calls) and self.text.lstrip().startswith("{")

    @property
    def brief(self) -> str:
        return ", ".join(call.name for call in self.calls) or "message"


@dataclass(frozen=True)
class PatchView:
    html: SafeString
    summary: str


def clip(text: str, limit: int) -> tuple[str, int]:
    """Head and tail of an overlong text, and the number of omitted characters."""
    if len(text) <= limit:
        return text, 0
    head = limit * 2 // 3
    missing = len(text) - limit
    gap = f"\n… {missing} characters are not shown here; the JSON download has them …\n"
    return text[:head] + gap + text[head - limit :], missing


@dataclass(frozen=True)
class Window:
    """Consecutive turns of the requested ones."""

    turns: list[TurnView]
    first: int
    """Position of the first turn among the requested ones; its index if all were requested."""
    total: int
    """Number of requested turns."""

    @property
    def number(self) -> int:
        return self.first // WINDOW

    @property
    def per(self) -> int:
        """Turns per full window."""
        return WINDOW

    @property
    def end(self) -> int:
        """One past the position of the last turn shown."""
        return self.first + len(self.turns)

    @property
    def before(self) -> int | None:
        """Start of the previous window. None at the start."""
        return max(0, self.first - WINDOW) if self.first else None

    @property
    def after(self) -> int | None:
        return self.end if self.end < self.total else None


def window_of(read: Reading, places: Sequence[int], at: int) -> Window:
    """Window of the turns `places` that contains the `at`-th one. Raises ArtifactError."""
    first = _first(len(places), at)
    return Window([view(turn) for turn in read.turns(places[first : first + WINDOW])], first, len(places))


def _first(total: int, at: int) -> int:
    return min(max(0, at), max(0, total - 1)) // WINDOW * WINDOW


def notices(facts: Iterable[TurnFacts], *, missing: int = 0) -> list[str]:
    """Notices above the transcript about omitted content."""
    found = []
    cut = sum(turn.cut for turn in facts)
    if cut:
        turns = "1 turn" if cut == 1 else f"{cut} turns"
        found.append(f"The harness cut the middle out of outputs in {turns} before the policy read on.")
    if missing:
        found.append(
            f"{missing:,} characters of very long texts are not on this page and not found by its search; the JSON download "
            "has them."
        )
    return found


def opening(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Initial system and user messages of the episode."""
    shown = []
    for message in messages:
        content = message.get("content", "")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2)
        role = str(message.get("role", "message"))
        shown.append({"role": role, "text": clip(text, MAX_TEXT)[0], "length": len(text), "folded": role == "system"})
    return shown


@dataclass(frozen=True)
class Mark:
    """Evidence of a finding in one turn."""

    finding: Finding
    excerpt: str
    where: str


def marks(findings: Iterable[Finding]) -> dict[int, list[Mark]]:
    """Turn → evidence in it."""
    found: dict[int, list[Mark]] = {}
    for finding in findings:
        for item in finding.evidence:
            if item.get("turn") is not None:
                line = f", line {item['line']}" if item.get("line") else ""
                mark = Mark(finding, clip(str(item.get("excerpt", "")), 400)[0], f"{item.get('field', '')}{line}")
                found.setdefault(item["turn"], []).append(mark)
    return found


def view(turn: Turn, *, whole: bool = False) -> TurnView:
    """A turn for display; `whole` shows it with the larger limit."""
    results = {result.call_id: result for result in turn.results}
    called = {call.id for call in turn.calls}
    cutter = _Clipper(WHOLE if whole else 1)
    return TurnView(
        index=turn.index,
        segment=turn.segment,
        summary=turn.summary,
        text=cutter.clip(turn.text, MAX_TEXT),
        calls=tuple(_call(call, results.get(call.id), cutter) for call in turn.calls[:MAX_CALLS]),
        problem=cutter.clip("\n".join(r.output for r in turn.results if r.call_id not in called), MAX_OUTPUT),
        tokens=turn.token_end - turn.token_start,
        token_start=turn.token_start,
        thinking=turn.thinking_tokens,
        generate_seconds=turn.generate_seconds,
        tool_seconds=turn.tool_seconds,
        asked=cutter.clip(turn.asked, MAX_TEXT),
        snapshot=turn.snapshot,
        short=cutter.cut and not whole,
        calls_cut=max(0, len(turn.calls) - MAX_CALLS),
    )


@dataclass
class _Clipper:
    factor: int
    cut: bool = False

    def clip(self, text: str, limit: int) -> str:
        shown, missing = clip(text, limit * self.factor)
        self.cut |= missing > 0
        return shown


def _call(call: ToolCall, result: ToolResult | None, cutter: _Clipper) -> CallView:
    change = edits.diff_of(call, MAX_ARGUMENT * cutter.factor)
    hidden = change.arguments if change else ()
    shown = {name: value for name, value in call.arguments.items() if name not in hidden}
    cutter.cut |= bool(change and change.missing)
    arguments = tuple((name, cutter.clip(as_text(value), MAX_ARGUMENT)) for name, value in shown.items())
    cut = f"{result.cut_bytes} bytes cut by the harness" if result and result.cut_bytes else ""
    return CallView(
        name=call.name,
        brief=" ".join(as_text(value)[:200].replace("\n", "⏎") for value in shown.values())[:200],
        arguments=arguments,
        output=cutter.clip(result.output, MAX_OUTPUT) if result else "",
        error=result.error.kind.value.replace("_", " ") if result and result.error else "",
        seconds=result.seconds if result else None,
        cut=cut,
        has_result=result is not None,
        diff=change.html if change else "",
        colour=tool_colours.colour_of(call.name),
    )


def as_text(value: Any) -> str:
    """A value of a message or call as display text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def diff_view(patch: str) -> PatchView:
    """A syntax-highlighted unified diff. Pygments escapes the text."""
    if not patch.strip():
        return PatchView(mark_safe(""), "")
    lines = patch.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    files = sum(line.startswith("+++ ") for line in lines)
    text, missing = clip(patch, MAX_PATCH)
    html = highlight(text, DiffLexer(stripnl=False), HtmlFormatter(cssclass="code", nobackground=True, wrapcode=True))
    summary = f"{files} file{'s' * (files != 1)}, +{added} −{removed}" + (
        f"; {missing} characters are cut" if missing else ""
    )
    return PatchView(mark_safe(html), summary)  # noqa: S308 (escaped by Pygments)
