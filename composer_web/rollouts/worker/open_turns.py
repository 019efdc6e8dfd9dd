"""Shows the unfinished turns of this process on the pages that are open on them, token by token.

Twice a second it looks which open turns are watched and asks the engine for the tokens of their running requests. It reads
only: requests are neither split nor delayed, so what is sampled does not depend on who watches. Failures cost the view.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from composer_web.live.hints import publish
from composer_web.rollouts.trajectory import partial_turns
from composer_web.rollouts.trajectory.partial_turns import KEPT_SECONDS, PartialTurn, Place
from trainer.inference.contract import InferenceError, InferenceRefused
from trainer.rollouts.open_turn import OpenTurn
from trainer.types import Turn

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
READ_SECONDS = 1.0
"""Deadline of one read from the engine."""
AT_ONCE = 8
"""Reads in progress at once."""
REFUSED_SECONDS = 60.0
"""Seconds after which a server that could not tell is asked again: another may stand there."""
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""A character of which some tokens are still to come is decoded as this."""


class PartialReader(Protocol):
    async def partial(self, deployment: str, session: str, *, timeout: float) -> list[int]:
        """Tokens so far of the session's running request. Raises InferenceError, InferenceRefused if it cannot tell."""
        ...


CatchUp = Callable[[int], Awaitable[None]]
"""Writes the whole turns of a sample that its page lacks."""


@dataclass(eq=False)
class _Shown:
    turn: OpenTurn
    catch_up: CatchUp
    tokens: list[int] = field(default_factory=list)
    partial: PartialTurn | None = None
    put_at: float = 0.0
    revision: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    """By the clock: a later attempt at the same turn has a higher one."""


class OpenTurns:
    """Open turns of all groups of the process. Belongs to the episodes' loop."""

    def __init__(self, reader: PartialReader) -> None:
        self._reader = reader
        self._open: dict[Place, _Shown] = {}
        self._looking: asyncio.Task[None] | None = None
        self._reads = asyncio.Semaphore(AT_ONCE)
        self._refused_until = 0.0

    def opened(self, group_id: int, turn: OpenTurn, catch_up: CatchUp) -> None:
        self._open[group_id, turn.sample] = _Shown(turn, catch_up)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_while_open())

    def closed(self, group_id: int, sample: int) -> None:
        self._open.pop((group_id, sample), None)

    async def _look_while_open(self) -> None:
        while self._open:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                log.warning("unfinished turns are not shown now", exc_info=True)

    async def look(self) -> None:
        """Bring what watched pages show up to date."""
        watched = await asyncio.to_thread(partial_turns.watched, list(self._open))
        changed = await asyncio.gather(*(self._show(place) for place in watched), return_exceptions=True)
        for place, found in zip(watched, changed, strict=True):
            if isinstance(found, BaseException):
                log.warning("group %d, sample %d: its unfinished turn is not shown", *place, exc_info=found)
        groups = {group_id for (group_id, _), found in zip(watched, changed, strict=True) if found is True}
        if groups:
            await asyncio.to_thread(publish, *map(partial_turns.topic, sorted(groups)))

    async def _show(self, place: Place) -> bool:
        """Whether there is something new to show."""
        shown = self._open.get(place)
        if shown is None:  # recorded since
            return False
        await shown.catch_up(shown.turn.sample)
        sampled = shown.turn.sampled
        tokens = await self._tokens(shown.turn)
        if not tokens or self._open.get(place) is not shown:
            return False
        behind = tokens == shown.tokens[: len(tokens)]  # the engine has answered, and the answer is on its way
        ended = sampled and shown.partial is not None and not shown.partial.sampled
        if behind and not ended:
            if shown.partial is not None and time.monotonic() - shown.put_at > KEPT_SECONDS / 4:
                await self._put(place, shown, shown.partial)
            return False
        partial = await asyncio.to_thread(_read, shown, tokens, sampled)
        shown.tokens, shown.partial = tokens, partial
        await self._put(place, shown, partial)
        return True

    async def _put(self, place: Place, shown: _Shown, partial: PartialTurn) -> None:
        shown.put_at = time.monotonic()
        await asyncio.to_thread(partial_turns.put, place, partial)

    async def _tokens(self, turn: OpenTurn) -> list[int]:
        """Tokens of the turn so far; none when they are not known."""
        answered = turn.token_ids
        if turn.sampled or time.monotonic() < self._refused_until:
            return answered
        try:
            async with self._reads:
                running = await self._reader.partial(turn.deployment, turn.session, timeout=READ_SECONDS)
        except InferenceRefused as error:
            self._refused_until = time.monotonic() + REFUSED_SECONDS
            log.info("the engine does not tell the tokens of running requests: %s", error)
            return answered
        except InferenceError as error:
            log.info("session %s: the tokens of its running request are not known now: %s", turn.session, error)
            return []
        # Where the engine answered in between, what it told may be a part of the answer.
        return [*answered, *running] if turn.token_ids == answered else []


def _read(shown: _Shown, tokens: list[int], sampled: bool) -> PartialTurn:
    turn, before = shown.turn, shown.partial
    read = turn.parse(tokens)
    kept, cut = partial_turns.bounded(
        Turn(
            index=turn.index,
            segment=turn.segment,
            text=read.text if sampled else read.text.rstrip(UNFINISHED),
            token_start=turn.start,
            token_end=turn.start + len(tokens),
            summary=turn.summary,
            thinking_tokens=read.thinking_tokens,
            calls=read.calls,
        )
    )
    revision = shown.revision
    if before is not None:
        goes_on = kept.text.startswith(before.turn.text)
        revision = before.revision + (not goes_on)
        if goes_on and not kept.calls and not sampled:  # a call that has begun does not parse; those before it did
            kept = kept.model_copy(update={"calls": before.turn.calls})
    return PartialTurn(turn=kept, revision=revision, sampled=sampled, cut=cut)
