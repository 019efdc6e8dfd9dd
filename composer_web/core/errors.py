"""User-facing errors: the field, the value found, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError
from psycopg.errors import UniqueViolation

from trainer.config.parts import PATTERNS

MAX_SHOWN = 120


class UserError(Exception):
    """An error that the caller can fix. `field` is a dotted path into the input, '' for the whole input."""

    def __init__(
        self, field: str, message: str, *, code: str = "invalid", fields: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.field, self.message, self.code = field, message, code
        self.fields = fields or ({field: message} if field else {})
        """Every invalid field → its message."""


class NotFound(UserError):
    """The requested object does not exist."""

    def __init__(self, noun: str, key: object) -> None:
        super().__init__("", f"there is no {noun} {key}", code="not_found")


class Denied(UserError):
    """The object exists, but the user may not access it: a 403 on pages and in the API."""

    def __init__(self, message: str) -> None:
        super().__init__("", message, code="forbidden")


class Conflict(UserError):
    """The current state does not allow the action."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(field, message, code="conflict")


CHOSEN = ("literal_error", "enum", "int_parsing", "float_parsing", "bool_parsing")
"""Error kinds whose invalid value is a choice or a number, and therefore not secret."""


def worded(item: Mapping[str, Any], *, secrets: bool = True) -> str:
    """Pydantic's message, with the value if it is short. `secrets`: the value may be secret."""
    found = item.get("input")
    shown = isinstance(found, bool | int | float) or (
        isinstance(found, str) and len(found) <= MAX_SHOWN and (not secrets or item["type"] in CHOSEN)
    )
    words = PATTERNS.get(item.get("ctx", {}).get("pattern", ""), str(item["msg"]).removeprefix("Value error, "))
    return words + (f" (found {found!r})" if shown else "")


def taken(error: IntegrityError) -> Conflict | None:
    """Error for a name that is taken. None if the IntegrityError is our fault. Names are unique across projects."""
    if not isinstance(error.__cause__, UniqueViolation):
        return None
    return Conflict("something of this name is there already, perhaps in another project; choose another name")
