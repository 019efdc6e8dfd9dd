"""Finding turns that went wrong in a way that a sentence can put right. A rule is a function; rules are named in the run.

A hint says what is true and what to do; it knows nothing of the hidden tests, and is never read by the policy outside
of its own re-scoring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox.harness.types import ToolErrorKind
from trainer.rollouts.types import Trajectory, Turn

HINT_CHARS = 400
"""Longest hint: a reminder, not a lesson."""
Rule = Callable[[Turn, Turn | None, Sequence[str]], str | None]
"""(the turn, the one before it, names of the tools) → the hint, None when nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Hint:
    """`text` is to be read before turn `turn` of the trajectory; `rule` is who says so."""

    turn: int
    rule: str
    text: str


def unknown_tool(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """A call of a tool that does not exist (the published example)."""
    for call, result in zip(turn.calls, turn.results, strict=False):
        if result.error is not None and result.error.kind is ToolErrorKind.UNKNOWN_TOOL:
            return f"Reminder: there is no tool {call.name}. Available tools: {', '.join(tools)}."
    return None


def invalid_arguments(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """A call whose arguments the tool's schema refuses; the harness's message names the field."""
    for result in turn.results:
        if result.error is not None and result.error.kind is ToolErrorKind.INVALID_ARGUMENTS:
            return f"Reminder: check the arguments. {result.error.message}"
    return None


def repeated_call(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """The same calls as in the turn before, with the same answers."""
    if before is None or not turn.calls:
        return None

    def asked(of: Turn) -> list[str]:
        return [json.dumps([call.name, call.arguments], sort_keys=True) for call in of.calls]

    same = asked(turn) == asked(before) and [r.output for r in turn.results] == [r.output for r in before.results]
    return "Reminder: this was just asked, and the answer is the same. Do something else." if same else None


def terminal_for_tools(turn: Turn, before: Turn | None, tools: Sequence[str]) -> str | None:
    """The terminal used for what a tool does better (the published collapse to terminal-only use)."""
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
    """The first hint of each turn that has one, in order. Raises ValueError for a rule that does not exist."""
    unknown = sorted(set(rules) - set(RULES))
    if unknown:
        raise ValueError(f"feedback.rules names {unknown[0]!r}; there are {', '.join(RULES)}")
    hints = []
    for index, turn in enumerate(trajectory.turns):
        before = trajectory.turns[index - 1] if index else None
        for name in rules:
            text = RULES[name](turn, before, tools)
            if text is not None:
                hints.append(Hint(index, name, text[:HINT_CHARS]))
                break
    return hints
