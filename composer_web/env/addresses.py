"""Addresses in settings: their form, Django's entry for a database, and the targets of mirrors."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

ENCODED = "/ # ? % @ : in a password are percent-encoded in an address, or the password is given by itself (…_PASSWORD)"
MIRRORS = {"tensorboard": "TensorBoard", "mlflow": "Mlflow", "wandb": "Wandb"}
"""Kinds of mirrors, with the class of the module `composer_web.mirrors.<kind>`."""
SECRET = re.compile(r"//\S*@")
"""User and password of an address."""


def checked(value: str, schemes: tuple[str, ...], expected: str, *, user: bool = True) -> str:
    """The address, without a user or password unless `user`. Raises ValueError in the words of `expected`: what was found
    may hold a password. An address without one may stand in messages."""
    parts = _split(value, expected)
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(expected)
    if "@" in parts.netloc and not user:
        raise ValueError(f"{expected}, without a user or password")
    return value


def _split(url: str, expected: str) -> SplitResult:
    """The parts of an address with a readable port. Raises ValueError in the words of `expected`.

    Python's own errors would show the characters of a password that stand where a port should; and where the rest of a
    password is read as a path, the characters before it would be looked up as a host.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(f"{expected}; {ENCODED}") from None
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(f"{expected}; {ENCODED}")
    return parts


def database_settings(url: str) -> dict[str, Any]:
    """Django's DATABASES entry for a postgresql:// URL. Raises ValueError that shows the expected form."""
    expected = "must look like postgresql://user:password@host:5432/name"
    parts = _split(url, expected)
    if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/"):
        raise ValueError(expected)
    if parts.fragment:
        raise ValueError(f"{expected}; {ENCODED}")
    query = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.strip("/")),
        "USER": unquote(parts.username or "") or query.get("user", ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or query.get("port") or ""),
    }


def mirror_targets(text: str) -> list[tuple[str, str]]:
    """`kind=where` pairs of OPENCOMPOSER_MIRRORS, separated by commas. Raises ValueError in words."""
    found: list[tuple[str, str]] = []
    for pair in filter(None, map(str.strip, text.split(","))):
        kind, _, where = (part.strip() for part in pair.partition("="))
        if kind not in MIRRORS or not where:
            raise ValueError(f"must be kind=where with {', '.join(MIRRORS)}, found {SECRET.sub('//…@', pair)!r}")
        if kind in dict(found):
            raise ValueError(f"names {kind} twice; a kind has one place")
        found.append((kind, where))
    return found
