"""A recorded session as tokens: each turn with what it read, what it sampled, and by which policy version.

A turn whose prompt goes on from the very tokens of an earlier one names it (`base`) and holds only what came after. Turns
linked so are one training sequence; a turn whose client rewrote the transcript begins another. Nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainer.realtime.reading import TurnFacts
from trainer.routed_experts import RoutedExperts


class RecordedTurn(BaseModel):
    """One request and its answer. Of T sampled tokens all lists have length T; redacted tokens have mask 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int = Field(ge=0)
    base: int | None = None
    """Turn whose tokens the prompt begins with."""
    since: int = 0
    """Messages of the transcript that were there before and are not repeated in `messages`."""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)
    """Names of the tools that were offered."""
    prompt_ids: list[int] = Field(default_factory=list)
    token_ids: list[int] = Field(default_factory=list)
    logprobs: list[float] = Field(default_factory=list)
    loss_mask: list[int] = Field(default_factory=list)
    versions: list[int] = Field(default_factory=list)
    experts: RoutedExperts | None = None
    """Routed experts of the sequence that ends with this turn, by position in it, from where the turn before has none on; None
    for a dense policy."""
    temperature: float = 1.0
    top_p: float = 1.0
    text: str = ""
    calls: list[dict[str, Any]] = Field(default_factory=list)
    facts: TurnFacts = Field(default_factory=TurnFacts)
    finish: str = "stop"
    redacted_tokens: int = 0
    first_token_ms: float = 0.0
    total_ms: float = 0.0

    @model_validator(mode="after")
    def _lengths(self) -> RecordedTurn:
        lengths = {len(self.token_ids), len(self.logprobs), len(self.loss_mask), len(self.versions)}
        if len(lengths) > 1:
            raise ValueError(
                f"turn {self.index}: tokens, log-probabilities, mask and versions differ in length {lengths}"
            )
        if self.base is not None and self.base >= self.index:
            raise ValueError(f"turn {self.index} goes on from turn {self.base}, which comes later")
        return self


@dataclass(slots=True)
class TokenStream:
    """Turns that are one sequence of tokens. `turns[t]` is the turn that sampled token t, -1 where none did."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    experts: list[RoutedExperts] = field(default_factory=list)

    def add(self, turn: RecordedTurn) -> None:
        read, wrote = len(turn.prompt_ids), len(turn.token_ids)
        self.tokens += [*turn.prompt_ids, *turn.token_ids]
        self.logprobs += [0.0] * read + turn.logprobs
        self.loss_mask += [0] * read + turn.loss_mask
        self.versions += [-1] * read + turn.versions
        self.turns += [-1] * read + [turn.index] * wrote
        if turn.experts is not None:
            self.experts.append(turn.experts)


def sequences(turns: Sequence[RecordedTurn]) -> list[TokenStream]:
    """Training sequences of a session, each ending where no later turn goes on.

    A turn that several others go on from is trained in the first of them; in the others it is only read.
    """
    by_index = {turn.index: turn for turn in turns if turn.token_ids}
    followed = {turn.base for turn in by_index.values() if turn.base is not None}
    found, trained = [], set[int]()
    for last in [turn for index, turn in sorted(by_index.items()) if index not in followed]:
        chain = [last]
        while chain[-1].base is not None:
            before = by_index.get(chain[-1].base)
            if before is None:
                break
            chain.append(before)
        if chain[-1].base is not None:
            continue  # its beginning is gone: the context of what was sampled is not known
        made = TokenStream()
        for turn in reversed(chain):
            made.add(
                turn if turn.index not in trained else turn.model_copy(update={"loss_mask": [0] * len(turn.token_ids)})
            )
            trained.add(turn.index)
        found.append(made)
    return found
