"""Secrets of others (tokens, keys) that the product has to keep: encrypted at rest with keys made from its own secret."""

from __future__ import annotations

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from pydantic import SecretStr


class Unreadable(Exception):
    """What was stored cannot be decrypted: the product's own secret has changed since."""


def seal(secret: str, *, purpose: bytes) -> str:
    """Text for the database; empty for no secret. What is sealed for one purpose opens for no other."""
    return _keys(purpose).encrypt(secret.encode()).decode() if secret else ""


def unseal(stored: str, *, purpose: bytes) -> SecretStr | None:
    """The secret, or None where there is none. Raises Unreadable."""
    if not stored:
        return None
    try:
        return SecretStr(_keys(purpose).decrypt(stored.encode()).decode())
    except InvalidToken as error:
        raise Unreadable("it was stored under another secret key; give it again") from error


def _keys(purpose: bytes) -> MultiFernet:
    """The newest key first; SECRET_KEY_FALLBACKS still decrypt."""
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    derived = [hashlib.scrypt(s.encode(), salt=purpose, n=2**12, r=8, p=1, dklen=32) for s in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in derived])
