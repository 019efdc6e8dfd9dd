"""Where in an attempt something was found, and the text around it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from sandbox.storable import StorableText

EXCERPT_CHARS = 240

Source = Literal["patch", "call", "output", "text", "report", "group", "run"]


class Evidence(BaseModel):
    """Where a hit is: the turn and call, and the span of characters in the text that `source` and `field` name."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    source: Source
    turn: int | None = None
    call: int | None = None
    """Index of the call in its turn."""
    field: StorableText = ""
    """Argument of the call (`command`, `content`), or the path of the patched file."""
    line: int | None = None
    """Line of the patched file, counted from 1."""
    start: int = 0
    end: int = 0
    excerpt: StorableText = ""


def excerpt(text: str, start: int, end: int) -> str:
    """The lines around a span in one line, bounded."""
    begin = max(text.rfind("\n", 0, start) + 1, start - EXCERPT_CHARS // 3)
    stop = text.find("\n", end)
    stop = min(len(text) if stop < 0 else stop, begin + EXCERPT_CHARS)
    return " ".join(text[begin : max(stop, min(end, begin + EXCERPT_CHARS))].split())
