"""Errors for people: which field, what was found, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError
from psycopg.errors import UniqueViolation

from trainer.config.parts import PATTERNS

MOST_SHOWN = 120


class UserError(Exception):
    """Something that the caller can put right. `field` is a dotted path into the input, '' for the whole."""

    def __init__(
        self, field: str, message: str, *, code: str = "invalid", fields: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.field, self.message, self.code = field, message, code
        self.fields = fields or ({field: message} if field else {})
        """Every wrong field → its message."""


class NotFound(UserError):
    """What was asked for does not exist."""

    def __init__(self, noun: str, key: object) -> None:
        super().__init__("", f"there is no {noun} {key}", code="not_found")


class Denied(UserError):
    """It is there, and this person may not: an answer with 403, on a page and by the API."""

    def __init__(self, message: str) -> None:
        super().__init__("", message, code="forbidden")


class Conflict(UserError):
    """The state of things does not allow it now."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(field, message, code="conflict")


CHOSEN = ("literal_error", "enum", "int_parsing", "float_parsing", "bool_parsing")
"""Kinds of errors of which the text that was found is a choice or a number, and so nothing secret."""


def worded(item: Mapping[str, Any], *, secrets: bool = True) -> str:
    """What pydantic says is wrong with a value, with the value where it is short. `secrets`: it may be one."""
    found = item.get("input")
    shown = isinstance(found, bool | int | float) or (
        isinstance(found, str) and len(found) <= MOST_SHOWN and (not secrets or item["type"] in CHOSEN)
    )
    words = PATTERNS.get(item.get("ctx", {}).get("pattern", ""), str(item["msg"]).removeprefix("Value error, "))
    return words + (f" (found {found!r})" if shown else "")


def taken(error: IntegrityError) -> Conflict | None:
    """What a refused name means to a person; None for what is our fault. Names are unique beyond one's own project."""
    if not isinstance(error.__cause__, UniqueViolation):
        return None
    return Conflict("something of this name is there already, perhaps in another project; choose another name")
