"""Shared parts of importers and exporters: errors, and the report of what a format cannot represent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox.errors import TaskError

MAX_DOCUMENT = 256 << 20
"""Bytes of one document that are read."""


class FormatRefused(TaskError):
    """A document that cannot be read as what it should be, or says more than we know how to keep. Nothing was imported."""


@dataclass(slots=True)
class Losses:
    """What a format cannot hold, collected while something is written in it."""

    found: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, why: str) -> None:
        self.found.setdefault(name, why)

    def __iter__(self) -> Iterator[str]:
        return iter(f"{name}: {why}" for name, why in self.found.items())

    def __len__(self) -> int:
        return len(self.found)


def read_json(data: bytes | str, what: str) -> Any:
    """Raises FormatRefused that names the place."""
    if len(data) > MAX_DOCUMENT:
        raise FormatRefused(f"{what} has {len(data)} bytes; at most {MAX_DOCUMENT} are read")
    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        raise FormatRefused(f"{what} is not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise FormatRefused(f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise FormatRefused(f"{what} is nested too deep") from None


def json_object(data: bytes | str, what: str) -> dict[str, Any]:
    value = read_json(data, what)
    if not isinstance(value, dict):
        raise FormatRefused(f"{what} is a {type(value).__name__}, not an object")
    return value


def newer(found: str, known: str) -> bool:
    """Whether a version such as 1.10 is newer than one that we know; letters before the number are left out."""
    numbers = [tuple(int(p) for p in v.lstrip("ATIF-v").split(".") if p.isdigit()) for v in (found, known)]
    return numbers[0] > numbers[1]
