"""Keys of endpoints: encrypted at rest, shown to nobody again."""

from __future__ import annotations

from pydantic import SecretStr

from composer_web.core.errors import UserError
from composer_web.core.encryption import Unreadable, seal, unseal

PURPOSE = b"opencomposer endpoint key v1"


def encrypt(key: str) -> str:
    """Text for the database; empty for no key."""
    return seal(key, purpose=PURPOSE)


def decrypt(stored: str) -> SecretStr:
    """The key; empty where there is none. Raises UserError when the product's secret has changed since."""
    try:
        return unseal(stored, purpose=PURPOSE) or SecretStr("")
    except Unreadable as error:
        raise UserError("key", f"the endpoint's key cannot be read: {error}") from None
