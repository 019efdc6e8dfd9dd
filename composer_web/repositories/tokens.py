"""Tokens of private repositories: encrypted at rest, never shown again."""

from __future__ import annotations

from pydantic import SecretStr

from composer_web.core.encryption import Unreadable, seal, unseal
from composer_web.core.errors import UserError

PURPOSE = b"opencomposer repository token v1"


def encrypt(token: str) -> str:
    """Text for the database; empty for no token."""
    return seal(token, purpose=PURPOSE)


def decrypt(stored: str) -> SecretStr | None:
    """The token, or None where there is none. Raises UserError when the product's key has changed since."""
    try:
        return unseal(stored, purpose=PURPOSE)
    except Unreadable as error:
        raise UserError("token", f"the repository's token cannot be read: {error}") from None
