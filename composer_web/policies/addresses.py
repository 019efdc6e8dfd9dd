"""Which addresses an endpoint may have: public ones, and the private hosts that the installation names."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from composer_web.env import env
from composer_web.ops.errors import UserError
from sandbox.network.addresses import forbidden, plain, public


def check_url(url: str) -> str:
    """The base without a slash at its end. Raises UserError that says what is wrong and what to do."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError("url", "the address of an endpoint looks like https://host/v1")
    if parts.username or parts.password:
        raise UserError("url", "the address holds a user or password; give the key in its own field")
    if parts.query or parts.fragment:
        raise UserError("url", "the address ends with a path such as /v1; no query and no fragment")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = {ipaddress.ip_address(entry[4][0].partition("%")[0]) for entry in _look_up(parts.hostname, port)}
    except ValueError as error:
        raise UserError("url", f"the address cannot be read: {error}") from error
    except OSError as error:
        raise UserError("url", f"the host {parts.hostname!r} cannot be found: {error.strerror or error}") from error
    named = {parts.hostname, f"{parts.hostname}:{port}"} & set(map(str.strip, env().endpoint_hosts.split(",")))
    for address in found:
        if forbidden(address):
            raise UserError("url", f"{parts.hostname!r} is at {plain(address)}, where no endpoint may be")
        if not public(address) and not named:
            raise UserError(
                "url",
                f"{parts.hostname!r} is at the private address {plain(address)}; who runs this installation may allow it with "
                f"OPENCOMPOSER_ENDPOINT_HOSTS={parts.hostname}:{port}",
            )
    return url.strip().rstrip("/")


def _look_up(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]
