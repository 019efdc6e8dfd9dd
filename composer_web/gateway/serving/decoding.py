"""Text of a growing answer, decoded piece by piece: a long answer costs as much for each piece as a short one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.policy.rendering.chat import ChatRenderer

UNFINISHED = "\ufffd"
"""What the decoder writes for bytes that are no character, or not yet one."""
CHARACTER_TOKENS = 4
"""Max tokens of one character: a byte each."""
LONGEST_TAIL = 256
"""Tokens that never become a character are decoded again and again only up to here."""


def decode(token_ids: Sequence[int], render: ChatRenderer) -> str:
    """Text of a whole answer without the tokens that ended it."""
    return str(
        render.tokenizer.decode(
            _without_end(token_ids, render), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
    )


def _without_end(token_ids: Sequence[int], render: ChatRenderer) -> list[int]:
    end = len(token_ids)
    while end and token_ids[end - 1] in render.stop_ids:
        end -= 1
    return list(token_ids[:end])


@dataclass(slots=True)
class Growing:
    """Text of one answer. Give it ever longer answers, each of which begins with the one before.

    The text of a token may depend on those before it, so each piece is decoded behind the piece before (`_context` to
    `_read`). Text is settled up to the last whole character.
    """

    render: ChatRenderer
    settled: str = ""
    _context: int = 0
    _read: int = 0

    def text(self, token_ids: Sequence[int]) -> str:
        ids = token_ids
        end = len(ids)
        while end > self._read and ids[end - 1] in self.render.stop_ids:
            end -= 1
        known = self._decode(ids, self._read)
        whole = self._decode(ids, end)
        for at in range(end, max(self._read, end - CHARACTER_TOKENS), -1):
            part = whole if at == end else self._decode(ids, at)
            if not part.endswith(UNFINISHED) and len(part) > len(known) and whole.startswith(part):
                return self._settle(part[len(known) :], at) + whole[len(part) :]
        if end - self._read > LONGEST_TAIL:
            return self._settle(whole[len(known) :], end)
        return self.settled + whole[len(known) :]

    def _settle(self, text: str, read: int) -> str:
        self.settled += text
        self._context, self._read = self._read, read
        return self.settled

    def _decode(self, ids: Sequence[int], end: int) -> str:
        part = list(ids[self._context : end])
        return str(self.render.tokenizer.decode(part, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@dataclass(slots=True)
class Stops:
    """Looks for the first stop string in one growing answer."""

    growing: Growing
    stops: Sequence[str]
    _tokens: int = 0
    _looked: int = 0

    def cut(self, token_ids: Sequence[int]) -> int | None:
        """Number of tokens up to the end of the first stop string. None without one."""
        before = copy(self.growing)
        text = self.growing.text(token_ids)
        begin = max(0, self._looked - max(map(len, self.stops), default=0) - CHARACTER_TOKENS)
        if all(text.find(stop, begin) < 0 for stop in self.stops):
            self._tokens, self._looked = len(token_ids), len(text)
            return None
        low, high = self._tokens + 1, len(token_ids)
        while low < high:
            middle = (low + high) // 2
            part = copy(before).text(token_ids[:middle])
            if any(part.find(stop, begin) >= 0 for stop in self.stops):
                high = middle
            else:
                low = middle + 1
        return low
