"""Errors for people: which field, what was found, what to do."""

from __future__ import annotations

from django.db import IntegrityError
from psycopg.errors import UniqueViolation


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


def taken(error: IntegrityError) -> Conflict | None:
    """What a refused name means to a person; None for what is our fault. Names are unique beyond one's own project."""
    if not isinstance(error.__cause__, UniqueViolation):
        return None
    return Conflict("something of this name is there already, perhaps in another project; choose another name")
