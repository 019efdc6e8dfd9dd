"""Builds the hinted context of a turn: the original context, with the hint as the last text before the turn.

No sampled token is decoded and re-encoded. The chat template produced the text between two turns from tool results, so
it can be rendered again with a user message after them. A turn is used only if rendering without the hint reproduces
the recorded tokens exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sandbox.harness.types import ToolResult
from trainer.algorithms.textual_feedback.find import Hint
from trainer.types import HintedTurn, Trajectory


class Renderer(Protocol):
    """The part of the policy's chat template that hints use."""

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]: ...

    def observe(
        self, results: Sequence[ToolResult], ask: str = "", *, said: Sequence[int] = (), before: Sequence[int] = ()
    ) -> list[int]: ...


def hinted(
    trajectory: Trajectory, hint: Hint, *, renderer: Renderer, schemas: Sequence[Mapping[str, Any]], max_tokens: int
) -> HintedTurn | None:
    """The hinted turn; None when its context cannot be reproduced exactly, or exceeds `max_tokens` tokens with a hint."""
    turn = trajectory.turns[hint.turn]
    segment = trajectory.segments[turn.segment]
    tokens = segment.tokens
    said = tokens[turn.token_start : turn.token_end]
    before = trajectory.turns[hint.turn - 1] if hint.turn else None
    first = before is None or before.segment != turn.segment
    if first and (turn.segment == 0 or segment.opening):
        *rest, task = trajectory.messages
        last = {**task, "content": segment.opening or task["content"]}
        kept = 0
        plain = renderer.start([*rest, last], schemas)
        told = renderer.start([*rest, {**last, "content": f"{last['content']}\n\n{hint.text}"}], schemas)
    elif before is not None and not first:
        kept = before.token_end
        earlier, prompt = tokens[before.token_start : before.token_end], tokens[: before.token_start]
        plain = renderer.observe(before.results, said=earlier, before=prompt)
        told = renderer.observe(before.results, ask=hint.text, said=earlier, before=prompt)
    else:  # the first turn after a truncation: its window opens with turns, not with messages
        return None
    if not said or tokens[kept : turn.token_start] != plain or kept + len(told) + len(said) > max_tokens:
        return None
    return HintedTurn(
        rule=hint.rule,
        sample=trajectory.sample,
        tokens=tokens[: turn.token_end],
        hinted_tokens=[*tokens[:kept], *told, *said],
        turn_tokens=len(said),
    )
