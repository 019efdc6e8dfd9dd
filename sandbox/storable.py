"""Text and JSON values that every store can hold: UTF-8, JSON, and columns of Postgres.

Policies, the programs they write and the reports of their tests produce any sequence of characters. JSON can spell one
half of a surrogate pair, which UTF-8 cannot encode; a column of Postgres holds no NUL; serialisers refuse values that are
nested deeply, integers above 64 bits and numbers that are not finite. Types that hold such text declare it as
`StorableText` (or `StorableObject`), so that whatever enters a record can also leave it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

REPLACEMENT = "\ufffd"
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
MAX_DEPTH = 32
"""Containers inside containers that a stored JSON value may have; what lies deeper is replaced by `TOO_DEEP`."""
MAX_ITEMS = 200_000
"""Values inside one stored JSON value; those beyond are left out."""
MAX_JSON_CHARS = 4 << 20
"""Longest JSON text that `parse_json` reads."""
TOO_DEEP = "[nested too deeply]"
INT_BOUND = 1 << 63


class JSONRefused(ValueError):
    """A JSON text is malformed or larger than may be read. The message says where."""


def storable_text(text: str) -> str:
    """`text` with each NUL and each lone surrogate shown as U+FFFD. Text that can be stored is returned as it is."""
    return UNSTORABLE.sub(REPLACEMENT, text)


def storable_json(value: Any) -> tuple[Any, str]:
    """A JSON value as it can be stored, and why it differs from `value` ("" where it does not).

    Raises ValueError for values that JSON does not have.
    """
    walk = _Walk()
    made = walk.copy(value, 0)
    return made, walk.problem


def parse_json(text: str | bytes, *, max_chars: int = MAX_JSON_CHARS) -> Any:
    """The value of a JSON text (bytes: UTF-8). Raises JSONRefused: malformed, longer than `max_chars`, nested deeper than
    MAX_DEPTH, or with NaN and Infinity, which JSON does not have."""
    if len(text) > max_chars:
        raise JSONRefused(f"the JSON text has {len(text)} characters, at most {max_chars} are read")
    try:
        text = text if isinstance(text, str) else text.decode()
        value = _DECODER.decode(text)
    except RecursionError:
        raise JSONRefused(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise JSONRefused(str(error)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise JSONRefused(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _refuse_constant(name: str) -> Any:
    raise JSONRefused(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _deeper_than(value: Any, levels: int) -> bool:
    """Without recursion: the value may be nested as deeply as the parser allows."""
    layer = [value]
    for _ in range(levels):
        layer = [item for node in layer if isinstance(node, dict | list) for item in _items(node)]
        if not layer:
            return False
    return any(isinstance(node, dict | list) for node in layer)


def _items(node: dict[str, Any] | list[Any]) -> Any:
    return node.values() if isinstance(node, dict) else node


class _Walk:
    """One copy of a value. The first difference is kept as `problem`."""

    def __init__(self) -> None:
        self.problem = ""
        self._left = MAX_ITEMS

    def copy(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if -INT_BOUND <= value < INT_BOUND else self._differs("an integer above 64 bits", None)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._differs("a number that is not finite", None)
        if not isinstance(value, dict | list | tuple):
            raise ValueError(f"{type(value).__name__} is not a JSON value")
        if depth >= MAX_DEPTH:
            return self._differs(f"values nested deeper than {MAX_DEPTH} levels", TOO_DEEP)
        if isinstance(value, dict):
            return {self._key(k): self.copy(v, depth + 1) for k, v in value.items() if self._room()}
        return [self.copy(item, depth + 1) for item in value if self._room()]

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise ValueError(f"a key is {type(key).__name__}, JSON has text")
        return self._text(key)

    def _room(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self._differs(f"more than {MAX_ITEMS} values", None)
        return self._left >= 0

    def _text(self, text: str) -> str:
        made = storable_text(text)
        return made if made == text else self._differs("a NUL character or a lone surrogate", made)

    def _differs(self, problem: str, instead: Any) -> Any:
        self.problem = self.problem or problem
        return instead


def _text_of(value: Any) -> Any:
    return storable_text(value) if isinstance(value, str) else value


def _object_of(value: Any) -> Any:
    return storable_json(value)[0] if isinstance(value, dict | list | tuple) else value


StorableText = Annotated[str, BeforeValidator(_text_of)]
"""A pydantic field of text: any `str` is taken and made storable."""
StorableObject = Annotated[dict[str, Any], BeforeValidator(_object_of)]
"""A pydantic field that holds a JSON object: made storable, bounded in depth and size."""
