"""Client addresses behind trusted proxies, set once for all readers.

`OPENCOMPOSER_TRUSTED_PROXIES` names the proxies. Their X-Forwarded-For replaces the address of the connection before
Django sees the request, so that `REMOTE_ADDR` is the client's for rate limits, log-in and the audit log alike. The
header is ignored from every other peer. uvicorn's own handling, which trusts the loopback by default, is off
(`--no-proxy-headers`).
"""

from __future__ import annotations

import ipaddress
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


def behind_proxies(app: Any, trusted: str) -> Any:
    """ASGI application that sees the client's address. `trusted`: comma-separated addresses and networks."""
    proxies = [one.strip() for one in trusted.split(",") if one.strip()]
    known = ProxyHeadersMiddleware(app, trusted_hosts=proxies)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if client := scope.get("client"):
            scope = {**scope, "client": (_plain(client[0]), client[1])}
        await known(scope, receive, send)

    return application


def _plain(host: str) -> str:
    """Convert an IPv4-mapped IPv6 address of a dual-stack socket (::ffff:10.0.0.1) to IPv4."""
    try:
        mapped = getattr(ipaddress.ip_address(host), "ipv4_mapped", None)
    except ValueError:
        return host
    return str(mapped or host)
