"""Context windows of a long episode, and what happens when one is full.

Self-summarization: once a window holds `trigger_tokens`, the policy is asked for a summary in the same context, so that
the engine has all but the request in its cache. The policy may think first; the summary is the text between the marks.
The next window opens with the task, the summary and the harness's state: plan, remaining steps, number of summaries.
All windows of an episode form one rollout: one reward, and one advantage for every token that the policy wrote,
including thoughts and summaries.

The alternative, `truncate`, opens the next window with the last turns unchanged and drops the rest. It is the baseline
against which summaries are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.harness.session import prompt
from sandbox.harness.types import ToolResult
from trainer.config import SummaryConfig
from trainer.types import Turn

OPEN, CLOSE, THINK_END = "<summary>", "</summary>", "</think>"
LEFT_OUT = "(this output did not fit into the context and was left out)"
KEPT_SHARE = 0.5
"""Maximum share of the trigger for the turns kept by `truncate`."""


class Renderer(Protocol):
    """The part of the policy's chat template that windows use."""

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]: ...

    def observe(
        self, results: Sequence[ToolResult], ask: str = "", *, said: Sequence[int] = (), before: Sequence[int] = ()
    ) -> list[int]: ...


class PlanItem(Protocol):
    @property
    def content(self) -> str: ...

    @property
    def status(self) -> str: ...


@dataclass(slots=True)
class Windows:
    """The windows of one episode. `made` counts the closed ones."""

    settings: SummaryConfig
    max_tokens: int
    """Maximum tokens of a window (`max_context_tokens`)."""
    made: int = 0

    def full(self, tokens: int) -> bool:
        """Whether a window with `tokens` tokens must be closed before the next turn."""
        trigger = self.settings.trigger_tokens
        return 0 < trigger <= tokens and self.made < self.settings.max_windows - 1

    @property
    def asks(self) -> bool:
        return self.settings.mode == "summary"

    def question(
        self, used: Sequence[int], turn: int, results: Sequence[ToolResult], renderer: Renderer
    ) -> list[int] | None:
        """Last observation of a window of the tokens `used`, whose last turn starts at `turn`: the results, and the request
        for a summary.

        Results that leave no room for the summary are dropped. None when there is no room even then.
        """
        short = [result.model_copy(update={"output": LEFT_OUT}) for result in results]
        for shown in (results, short):
            tokens = renderer.observe(shown, ask=prompt("summarize"), said=used[turn:], before=used[:turn])
            if len(used) + len(tokens) + self.settings.max_tokens <= self.max_tokens:
                return tokens
        return None

    def next_messages(
        self, messages: Sequence[Mapping[str, Any]], summary: str, plan: Sequence[PlanItem]
    ) -> list[dict[str, Any]]:
        """Opening messages of the next window: the last of `messages` (the task), followed by summary and state."""
        *before, task = [dict(message) for message in messages]
        told = prompt("continue").format(summary=summary or "(empty)", state=state(plan, self.made))
        return [*before, {**task, "content": f"{task['content']}\n\n{told}"}]


def read_summary(text: str) -> str:
    """Extract the summary from a turn that may begin with thoughts: the text after its last opening mark, or after the
    thinking."""
    said = text.rpartition(THINK_END)[2]
    _, opened, inside = said.rpartition(OPEN)
    return (inside.partition(CLOSE)[0] if opened else said).strip()


def state(plan: Sequence[PlanItem], summaries: int) -> str:
    """Harness state: the plan with each step's status, remaining steps, and the number of summaries."""
    steps = "; ".join(f"[{item.status}] {item.content}" for item in plan)
    remaining = sum(item.status != "done" for item in plan)
    known = f"plan: {steps}. {remaining} of {len(plan)} steps remain. " if plan else "no plan. "
    return f"{known}Summaries so far: {summaries}."


def last_turns(tokens: Sequence[int], turns: Sequence[Turn], segment: int, room: int) -> list[int]:
    """Tokens from the earliest turn of `segment` whose suffix fits into `room`; empty if no turn does.

    They begin with a turn of the policy, because a window's opening ends where such a turn begins.
    """
    for turn in turns:
        if turn.segment == segment and len(tokens) - turn.token_start <= room:
            return list(tokens[turn.token_start :])
    return []
