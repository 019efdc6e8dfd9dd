"""A turn between its first token and its record: what observers need to show it while it is sampled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandbox.harness.types import ToolCall


class ReadTurn(Protocol):
    """A turn that was parsed from its tokens."""

    @property
    def text(self) -> str: ...

    @property
    def calls(self) -> tuple[ToolCall, ...]: ...

    @property
    def thinking_tokens(self) -> int: ...


@dataclass(slots=True, eq=False)
class OpenTurn:
    """A turn that is being sampled, or whose tools run. Read it on the episodes' loop."""

    sample: int
    deployment: str
    session: str
    """Session of its requests at the engine."""
    index: int
    segment: int
    window: Sequence[int]
    """Tokens of the context window: grows by the turn's tokens when the engine answers."""
    start: int
    """Position of the turn's first token in `window`."""
    parse: Callable[[Sequence[int]], ReadTurn]
    """Reads a turn's tokens; half a turn, too. Never raises, and may run in any thread."""
    summary: bool = False
    sampled: bool = False
    """All its tokens are in `window`."""
    began: float = field(default_factory=time.monotonic)

    @property
    def token_ids(self) -> list[int]:
        """Tokens that the engine has answered with."""
        return list(self.window[self.start :])


class TurnObserver(Protocol):
    """Hears of turns before they are recorded. Its methods return at once and never raise."""

    def opened(self, turn: OpenTurn) -> None:
        """The sample begins a turn; the one before it has been recorded, or is lost."""
        ...

    def closed(self, sample: int) -> None:
        """The sample's turn has been recorded, or its episode ended."""
        ...
