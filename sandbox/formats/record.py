"""A recorded rollout: the common representation into and from which all trajectory formats convert."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from sandbox.tasks.spec import Frozen


class Call(Frozen):
    id: str
    name: str
    arguments: str
    """JSON as the policy sampled it: written anew it would be other tokens."""


class Result(Frozen):
    call_id: str
    content: str
    error: str = ""
    """Kind of the failure; "" for a call that worked."""


class Step(Frozen):
    """One message of the policy, and what its calls returned."""

    content: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    completion_token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Log-probabilities of the completion's tokens, at the sampling temperature."""
    excluded: bool = False
    """Not to be trained on: it was read as context and not sampled here."""
    seconds: float = 0.0

    @model_validator(mode="after")
    def _one_each(self) -> Step:
        if self.logprobs and len(self.logprobs) != len(self.completion_token_ids):
            raise ValueError(f"{len(self.logprobs)} log-probabilities for {len(self.completion_token_ids)} tokens")
        known = {call.id for call in self.calls}
        if lost := next((result.call_id for result in self.results if result.call_id not in known), None):
            raise ValueError(f"a result of call {lost!r}, which this step does not make")
        return self


class Opening(Frozen):
    role: str = Field(pattern="^(system|user)$")
    content: str


class Record(Frozen):
    id: str
    task: str
    model: str
    agent: str = "opencomposer"
    agent_version: str = "0.1.0"
    opening: tuple[Opening, ...]
    steps: tuple[Step, ...]
    tools: tuple[dict[str, Any], ...] = ()
    """Definitions as the policy saw them, in the form of OpenAI's functions."""
    reward: float | None = None
    """None: nobody knows, because the machine failed."""
    verdict: str = ""
    stop_reason: str = ""
    patch: str = ""
    seconds: float = 0.0
    extra: dict[str, Any] = Field(default_factory=dict)
