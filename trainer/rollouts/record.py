"""State of an episode so far: the open context window, the closed ones, and the turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.backends.base import Patch
from sandbox.harness.session import system_prompt
from sandbox.tasks.spec import TaskSpec
from trainer.inference.contract import GenerateResponse
from trainer.orchestrator.validation import token_versions
from trainer.rollouts.choices import Choices
from trainer.rollouts.snapshots import Origin
from trainer.types import Forked, Segment, Turn, Usage


def opening_messages(task: TaskSpec) -> tuple[dict[str, Any], ...]:
    """Opening messages: the harness's system message, and the task's instruction as the user's message."""
    return ({"role": "system", "content": system_prompt()}, {"role": "user", "content": task.instruction})


@dataclass(slots=True)
class Record:
    """The record becomes the trajectory, whatever ends the episode."""

    messages: tuple[dict[str, Any], ...]
    schema_hash: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    choices: Choices = field(default_factory=Choices)
    segments: list[Segment] = field(default_factory=list)
    """Closed context windows; the lists above belong to the open one."""
    turns: list[Turn] = field(default_factory=list)
    patch: Patch = field(default_factory=Patch)
    visible_passed: bool | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    forked: Forked | None = None
    opening: str = ""
    """User's message of the open window, if it opened with a summary."""
    asked_summary: bool = False
    """The open window ends with an unanswered request for a summary."""
    usage: Usage | None = None

    @classmethod
    def begin(cls, task: TaskSpec, origin: Origin | None) -> Record:
        """Record of a new episode, or of one that continues from `origin`: it has read all earlier tokens and sampled
        none."""
        if origin is None:
            return cls(messages=opening_messages(task))
        record = cls(messages=origin.messages, turns=list(origin.turns), forked=origin.forked)
        for tokens in origin.left:
            record.read(tokens)
            record.close_segment()
        record.read(origin.tokens)
        record.asked_summary = origin.summarize
        return record

    def read(self, tokens: Sequence[int]) -> None:
        """Append observation tokens."""
        self.tokens += tokens
        self.logprobs += [0.0] * len(tokens)
        self.loss_mask += [0] * len(tokens)
        self.versions += [-1] * len(tokens)
        self.choices.read(len(tokens))

    def wrote(self, response: GenerateResponse) -> None:
        """Append sampled tokens with the version of each. Raises InvalidEngineResponse."""
        versions = token_versions(response)
        self.choices.wrote(response, len(self.tokens))
        self.tokens += response.token_ids
        self.logprobs += response.logprobs
        self.loss_mask += [1] * len(response.token_ids)
        self.versions += versions

    def close_segment(self) -> None:
        """Close the open context window and start an empty one."""
        if self.tokens:
            self.segments.append(
                Segment(
                    tokens=self.tokens,
                    logprobs=self.logprobs,
                    loss_mask=self.loss_mask,
                    versions=self.versions,
                    experts=self.choices.routed(),
                    support=self.choices.support(),
                    opening=self.opening,
                )
            )
        self.opening = ""
        self.tokens, self.logprobs, self.loss_mask, self.versions = [], [], [], []
        self.choices = Choices()

    def spend(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
