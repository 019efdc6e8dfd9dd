"""Websocket messages that a page may send, their maximum size, and the limits of a connection."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

MAX_TOPICS = 32
MAX_FRAME = 4096
"""Characters of a message. The server itself takes frames up to four times as many bytes (`--ws-max-size`)."""
WATCH_COSTS = 8
"""A run that is watched, in topics: everything of it is told at once."""


class Message(BaseModel):
    """What is in the lists is judged one by one, so that one wrong topic does not cost a page the others."""

    model_config = ConfigDict(strict=True, extra="forbid")

    subscribe: list[Any] = []
    unsubscribe: list[Any] = []
    watch: list[Any] = []
    unwatch: list[Any] = []
    ping: Any = None

    @property
    def cost(self) -> int:
        return len(self.subscribe) + len(self.unsubscribe) + len(self.unwatch) + WATCH_COSTS * len(self.watch)


class Misunderstood(Exception):
    """A message that is none. `code` says what is wrong with it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read(text: str | None) -> Message:
    """Raises Misunderstood. `text` is None for a binary frame."""
    if text is None or len(text) > MAX_FRAME:
        raise Misunderstood("frame", f"send JSON text of at most {MAX_FRAME} characters")
    try:
        return Message.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise Misunderstood("json", "the message is not JSON") from error
        where = ".".join(map(str, first["loc"]))[:80]
        said = f"{where}: {first['msg']}; " if where else ""
        raise Misunderstood("message", f'{said}send an object such as {{"subscribe": ["runs"]}}') from error


class Budget:
    """What a connection may ask for: `MAX` at once, and `EACH_SECOND` again. A page that opens asks for about a hundred."""

    MAX = 300.0
    EACH_SECOND = 30.0

    def __init__(self) -> None:
        self._left, self._at = self.MAX, time.monotonic()

    def take(self, cost: float) -> bool:
        """False when it is spent."""
        now = time.monotonic()
        self._left = min(self.MAX, self._left + (now - self._at) * self.EACH_SECOND) - cost
        self._at = now
        return self._left >= 0
