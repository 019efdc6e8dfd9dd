"""The outer half of the proxy: builds its own requests to registries, to allowed hosts at allowed addresses.

The only part copied from a sandbox's request is the package's name. Each connection resolves the host once, checks
every address, and connects to a checked address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from sandbox.network.addresses import allowed
from sandbox.network.policy import Bounds, Denied, Rule
from sandbox.network.upstream import Upstream, Upstreams

MAX_REDIRECTS = 5
AGENT = "opencomposer-registry-proxy"
Place = tuple[str, int]
"""Host and port."""
_REDIRECTS = (301, 302, 303, 307, 308)


class RegistryFailed(Exception):
    """The registry, or the way to it, is at fault; missing data for whoever asked."""


class NotThere(Exception):
    """The registry says that there is no such thing."""


@dataclass(slots=True)
class Meter:
    """What one sandbox has used of its bounds, and one request's share of it."""

    bounds: Bounds
    fetched: int = 0
    sent: int = 0
    hosts: list[str] = field(default_factory=list)
    parent: Meter | None = None

    def share(self) -> Meter:
        """A meter for one request that counts into this one too."""
        return Meter(self.bounds, parent=self)

    def fetch(self, count: int) -> None:
        """Raises Denied (BYTES) when the sandbox has caused more than its bound."""
        self.fetched += count
        if self.parent is not None:
            self.parent.fetch(count)
        elif self.fetched > self.bounds.bytes:
            raise Denied(Rule.BYTES, f"more than {self.bounds.bytes} bytes were fetched for this sandbox", 429)

    def send(self, count: int) -> None:
        """Asked for before an answer goes out. Raises Denied (BYTES), and then counts nothing."""
        if self.parent is not None:
            self.parent.send(count)
        elif self.sent + count > self.bounds.bytes:
            raise Denied(Rule.BYTES, f"this sandbox may receive {self.bounds.bytes} bytes in all", 429)
        self.sent += count


def check_address(address: str, *, private: bool) -> None:
    """Raises Denied (ADDRESS) for an address that no registry may have."""
    if not allowed(address, private=private):
        raise Denied(Rule.ADDRESS, f"a registry's host is at the address {address}, which is not allowed", 502)


class CheckedResolver(AbstractResolver):
    """Looks names up with the system's resolver and refuses a name as a whole when one of its addresses is refused."""

    def __init__(self, private: set[Place]) -> None:
        self._private = private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        found = []
        for kind, _, proto, _, address in entries:
            check_address(str(address[0]), private=(host, port) in self._private)
            found.append(
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=port,
                    family=kind,
                    proto=proto,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return found

    async def close(self) -> None:
        """Nothing is held."""


class Fetcher:
    """Fetches for one sandbox. Made in, and used by, one event loop."""

    def __init__(self, upstreams: Upstreams, bounds: Bounds) -> None:
        self._bounds = bounds
        self._proxy = upstreams.http_proxy.get_secret_value() if upstreams.http_proxy else None
        everyone = [*upstreams.python, *(one for one in (upstreams.npm, upstreams.go, upstreams.cargo) if one)]
        self._private = {place for one in everyone if one.private for place in _places(one)}
        if self._proxy:
            self._private.add(_place(self._proxy))
        trust = _trust(upstreams.ca_file)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=CheckedResolver(self._private), ssl=trust, limit=bounds.connections, happy_eyeballs_delay=None
            ),
            timeout=aiohttp.ClientTimeout(
                total=bounds.request_seconds, connect=bounds.connect_seconds, sock_read=bounds.silence_seconds
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": AGENT},
            trust_env=False,
        )

    async def page(self, upstream: Upstream, url: str, accept: str, meter: Meter) -> tuple[bytes, str]:
        """A page of metadata and its content type, without parameters. Raises Denied, RegistryFailed, NotThere."""
        body = bytearray()
        async with self._get(upstream, url, meter, accept=accept) as answer:
            async for chunk in answer.content.iter_chunked(1 << 16):
                meter.fetch(len(chunk))
                body += chunk
                if len(body) > self._bounds.page_bytes:
                    raise Denied(Rule.SIZE, f"a page of metadata exceeds {self._bounds.page_bytes} bytes")
            return bytes(body), answer.content_type

    async def file(self, upstream: Upstream, url: str, meter: Meter, *, listed: bool) -> AsyncIterator[bytes]:
        """The bytes of a file, as they arrive. `listed`: the registry's own page names this address."""
        total = 0
        async with self._get(upstream, url, meter, listed=listed, encoding="identity") as answer:
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise RegistryFailed("a file came in a transfer encoding that was not asked for")
            async for chunk in answer.content.iter_chunked(1 << 18):
                meter.fetch(len(chunk))
                total += len(chunk)
                if total > self._bounds.file_bytes:
                    raise Denied(Rule.SIZE, f"a file exceeds {self._bounds.file_bytes} bytes")
                yield chunk

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _get(
        self,
        upstream: Upstream,
        url: str,
        meter: Meter,
        *,
        accept: str = "*/*",
        encoding: str = "gzip, deflate",
        listed: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Follows redirects itself, each checked like the first address. Raises Denied, RegistryFailed, NotThere."""
        headers = {"Accept": accept, "Accept-Encoding": encoding}
        try:
            for _ in range(MAX_REDIRECTS + 1):
                self._check(upstream, url, listed=listed)
                meter.hosts.append(urlsplit(url).netloc)
                async with self._session.get(
                    url, headers=headers | _credentials(upstream, url), allow_redirects=False, proxy=self._proxy
                ) as answer:
                    if answer.status in _REDIRECTS and "Location" in answer.headers:
                        url, listed = join(url, answer.headers["Location"]), False
                        continue
                    if answer.status in (404, 410):
                        raise NotThere
                    if answer.status != 200:
                        raise RegistryFailed(f"the registry answered with status {answer.status}")
                    yield answer
                    return
            raise RegistryFailed(f"the registry redirected more than {MAX_REDIRECTS} times")
        except TimeoutError:
            raise RegistryFailed("the registry did not answer in time") from None
        except aiohttp.InvalidURL:
            raise RegistryFailed("the registry named an address that is none") from None
        except (aiohttp.ClientError, OSError) as error:
            raise RegistryFailed(f"the registry could not be read ({type(error).__name__})") from None

    def _check(self, upstream: Upstream, url: str, *, listed: bool) -> None:
        """Raises Denied (HOST, ADDRESS)."""
        parts, place = urlsplit(url), _place(url)
        if parts.scheme not in ("http", "https") or not place[0] or parts.username is not None:
            raise Denied(Rule.HOST, "the registry named an address that is not allowed", 502)
        secure = parts.scheme == "https" or urlsplit(upstream.url).scheme == "http"
        trusted = listed and upstream.file_hosts is None and parts.scheme == "https"
        if not secure or not (trusted or place in _places(upstream)):
            shown = f"{parts.scheme}://{place[0]}"
            raise Denied(Rule.HOST, f"the registry sent this on to {shown}, which is not allowed", 502)
        try:
            ipaddress.ip_address(place[0])
        except ValueError:  # a name: the resolver checks what it stands for
            if trusted and upstream.private:
                self._private.add(place)
            return
        check_address(place[0], private=place in self._private)


@lru_cache(maxsize=8)
def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """Reading the certificates takes some 20 ms, so sandboxes share them."""
    return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)


def join(base: str, link: str) -> str:
    """The address that a link on the page `base` means. Raises Denied (HOST) for one that means none."""
    try:
        url = urljoin(base, link)
        _place(url)
    except ValueError:
        raise Denied(Rule.HOST, "the registry named an address that is none", 502) from None
    return url


def _place(url: str) -> Place:
    """Host and port. Raises ValueError."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)


def _places(upstream: Upstream) -> set[Place]:
    """Where the registry itself and its listed file hosts are."""
    scheme = urlsplit(upstream.url).scheme
    return {_place(upstream.url), *(_place(f"{scheme}://{host}") for host in upstream.file_hosts or ())}


def _credentials(upstream: Upstream, url: str) -> dict[str, str]:
    """The registry's credentials, for its own origin only."""
    if upstream.authorization is None or _origin(url) != _origin(upstream.url):
        return {}
    return {"Authorization": upstream.authorization.get_secret_value()}


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
