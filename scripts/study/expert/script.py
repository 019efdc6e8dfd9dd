"""What an expert's script is: given the tool outputs so far, the next call."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict

from sandbox.harness.types import ToolCall

Script = Callable[[Sequence[str]], ToolCall]
"""The outputs of the tools so far → the next call. The same outputs give the same call."""


class Expert(BaseModel):
    """`accuracy` is the share of its edits that are the intended fix; the others are plausible guesses."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float
    seed: int = 0

    def rng(self, task: str) -> random.Random:
        """Choices of one task. They do not depend on the order in which tasks are played."""
        return random.Random(f"expert:{self.seed}:{task}")


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="call_0", name=name, arguments=dict(arguments))
