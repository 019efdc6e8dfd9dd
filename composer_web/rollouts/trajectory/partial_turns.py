"""The unfinished turn of a running rollout, between the worker that samples it and the pages that show it.

It stands in Valkey with a time limit. An open page asks for it by a key with a time limit of its own, so that workers do
nothing for rollouts that nobody looks at. Nothing depends on it: without Valkey, pages show whole turns only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

import redis
from pydantic import ValidationError

from composer_web.env import env
from composer_web.rollouts.trajectory.trajectory_store import Cutter
from trainer.types import Frozen, Turn

log = logging.getLogger(__name__)
T = TypeVar("T")

WATCHED_SECONDS = 15
"""So long a page's request keeps the worker asking. An open page repeats it every five seconds (`partial.js`)."""
KEPT_SECONDS = 20
"""So long a turn that no worker renews is shown."""
MAX_TEXT = 100_000
"""Maximum characters of the text, counted from its beginning, so that what is on a page stays as it is."""
MAX_BYTES = 1 << 20

Place = tuple[int, int]
"""(group, sample)"""

_warned = 0.0


class PartialTurn(Frozen):
    turn: Turn
    """What is known of it: its text so far, and the calls that could be read."""
    revision: int = 0
    """Grows when the text is another one and no continuation: another engine began the turn again."""
    sampled: bool = False
    """All tokens are sampled; the tools run."""
    cut: bool = False
    """The text is longer than `MAX_TEXT`."""

    @property
    def name(self) -> str:
        """Texts of the same name begin alike."""
        return f"{self.turn.index}.{self.revision}"


def topic(group_id: int) -> str:
    """Live topic of a group's unfinished turns."""
    return f"tokens:{group_id}"


def watch(place: Place) -> None:
    """Ask the rollout's worker for its unfinished turn."""
    _tried(lambda: _valkey().set(_key("watched", place), 1, ex=WATCHED_SECONDS), None)


def watched(places: Iterable[Place]) -> list[Place]:
    """Those whose page is open."""
    asked = list(places)
    if not asked:
        return []
    nobody: list[bytes | str | None] = []
    found = _tried(lambda: _valkey().mget([_key("watched", place) for place in asked]), nobody)
    return [place for place, mark in zip(asked, found, strict=False) if mark is not None]


def put(place: Place, partial: PartialTurn) -> None:
    content = partial.model_dump_json()
    if len(content) > MAX_BYTES:  # of arguments, which the text shows as well
        content = partial.model_copy(update={"turn": partial.turn.model_copy(update={"calls": ()})}).model_dump_json()
    _tried(lambda: _valkey().set(_key("turn", place), content, ex=KEPT_SECONDS), None)


def get(place: Place) -> PartialTurn | None:
    content = _tried(lambda: _valkey().get(_key("turn", place)), None)
    try:
        return PartialTurn.model_validate_json(content) if content else None
    except ValidationError:  # of a worker of another release
        log.info("group %d, sample %d: its unfinished turn has another shape", *place)
        return None


def bounded(turn: Turn) -> tuple[Turn, bool]:
    """The turn as it is kept, and whether its text is cut."""
    cut = len(turn.text) > MAX_TEXT
    return Cutter(MAX_TEXT).turn(turn.model_copy(update={"text": turn.text[:MAX_TEXT]})), cut


def _key(kind: str, place: Place) -> str:
    return f"partial:{kind}:{place[0]}:{place[1]}"


@lru_cache(maxsize=1)
def _valkey() -> redis.Redis:
    """Asks once: what fails is asked for again in a moment anyway."""
    return redis.Redis.from_url(env().redis_url, socket_timeout=2.0, socket_connect_timeout=2.0, retry=None)


def _tried(work: Callable[[], T], otherwise: T) -> T:
    global _warned
    try:
        return work()
    except redis.RedisError as error:
        if time.monotonic() - _warned > 60:
            _warned = time.monotonic()
            log.warning("unfinished turns are not shown until Valkey answers: %s", error)
        return otherwise
