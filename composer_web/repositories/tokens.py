"""Tokens of private repositories: encrypted at rest with a key made from the product's own, shown to nobody again."""

from __future__ import annotations

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from pydantic import SecretStr

from composer_web.ops.errors import UserError

PURPOSE = b"opencomposer repository token v1"


def encrypt(token: str) -> str:
    """Text for the database; empty for no token."""
    return _keys().encrypt(token.encode()).decode() if token else ""


def decrypt(stored: str) -> SecretStr | None:
    """The token, or None where there is none. Raises UserError when the product's key has changed since."""
    if not stored:
        return None
    try:
        return SecretStr(_keys().decrypt(stored.encode()).decode())
    except InvalidToken:
        raise UserError("token", "the repository's token was stored under another secret key; give it again") from None


def _keys() -> MultiFernet:
    """The newest key first; SECRET_KEY_FALLBACKS still decrypt."""
    secrets = [settings.SECRET_KEY, *getattr(settings, "SECRET_KEY_FALLBACKS", [])]
    derived = [hashlib.scrypt(s.encode(), salt=PURPOSE, n=2**12, r=8, p=1, dklen=32) for s in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in derived])
