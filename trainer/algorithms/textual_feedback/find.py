"""Rules that find turns with a mistake that one sentence can correct. A rule is a function; the run selects rules by
name.

A hint states a fact and an action. It does not depend on the hidden tests, and the policy reads it only when its own
turn is rescored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox.harness.types import ToolErrorKind
from trainer.types import Trajectory, Turn

HINT_CHARS = 400
"""Maximum length of a hint: a reminder, not a lesson."""
Rule = Callable[[Turn, Turn | None, Sequence[str]], str | None]
"""(turn, previous turn, tool names) → hint; None when the turn is fine."""


@dataclass(frozen=True, slots=True)
class Hint:
    """`text` is inserted before turn `turn` of the trajectory; `rule` is its author."""

    turn: int
    rule: str
    text: str


def unknown_tool(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """A call of an unknown tool (the published example)."""
    for call, result in zip(turn.calls, turn.results, strict=False):
        if result.error is not None and result.error.kind is ToolErrorKind.UNKNOWN_TOOL:
            return f"Reminder: there is no tool {call.name}. Available tools: {', '.join(tools)}."
    return None


def invalid_arguments(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """A call whose arguments violate the tool's schema; the harness's message names the field."""
    for result in turn.results:
        if result.error is not None and result.error.kind is ToolErrorKind.INVALID_ARGUMENTS:
            return f"Reminder: check the arguments. {result.error.message}"
    return None


def repeated_call(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """The same calls as in the previous turn, with the same results."""
    if before is None or not turn.calls:
        return None

    def asked(of: Turn) -> list[str]:
        return [json.dumps([call.name, call.arguments], sort_keys=True) for call in of.calls]

    same = asked(turn) == asked(before) and [r.output for r in turn.results] == [r.output for r in before.results]
    return "Reminder: this was just asked, and the answer is the same. Do something else." if same else None


def terminal_for_tools(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """Terminal use where a tool fits better (the published collapse to terminal-only use)."""
    better = {
        "grep": "grep",
        "rg": "grep",
        "cat": "read_file",
        "head": "read_file",
        "sed": "edit_file",
        "ls": "list_dir",
    }
    for call in turn.calls:
        words = str(call.arguments.get("command", "")).split()
        tool = better.get(words[0]) if call.name == "run_terminal_cmd" and words else None
        if tool in tools:
            return f"Reminder: use the tool {tool} for this, not the terminal."
    return None


RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (unknown_tool, invalid_arguments, repeated_call, terminal_for_tools)
}


def find(trajectory: Trajectory, *, rules: Sequence[str], tools: Sequence[str]) -> list[Hint]:
    """The first hint of each turn that has one, in order. Raises ValueError for an unknown rule."""
    unknown = sorted(set(rules) - set(RULES))
    if unknown:
        raise ValueError(f"textual_feedback.rules names {unknown[0]!r}; there are {', '.join(RULES)}")
    hints = []
    for index, turn in enumerate(trajectory.turns):
        before = trajectory.turns[index - 1] if index else None
        for name in rules:
            text = RULES[name](turn, before, tools)
            if text is not None:
                hints.append(Hint(index, name, text[:HINT_CHARS]))
                break
    return hints
