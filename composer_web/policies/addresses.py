"""Allowed addresses of endpoints: public ones, and private hosts that the installation names."""

from __future__ import annotations

from urllib.parse import urlsplit

from composer_web.core.network import safe_http
from composer_web.core.errors import UserError
from sandbox.network.guard import Refused


def check_url(url: str) -> str:
    """The base URL without a trailing slash. Raises UserError with problem and remedy."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError("url", "the address of an endpoint looks like https://host/v1")
    if parts.username or parts.password:
        raise UserError("url", "the address holds a user or password; give the key in its own field")
    if parts.query or parts.fragment:
        raise UserError("url", "the address ends with a path such as /v1; no query and no fragment")
    try:
        safe_http.check(url, safe_http.endpoints())
    except (Refused, safe_http.Unreachable) as error:
        raise UserError("url", str(error)) from error
    return url.strip().rstrip("/")
