"""Server discovery for the router and the vLLM front end: servers from the command line and from a file that is reread
when it changes. Names that resolve to several servers are resolved again, too, so servers can join and leave during
runs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from trainer.inference.errors import BadRequest, ServerError

log = logging.getLogger(__name__)
RESOLVE_SECONDS = 2.0
"""Interval between look-ups of a name, and their timeout."""


class ReplicaSpec(BaseModel):
    """One server, or with `each` one for every address of its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://\S+$")
    cluster: str = "here"
    production: bool = False
    """It serves production first, and is borrowed only while production leaves it idle."""
    each: bool = False
    """The name resolves to several servers, such as replicas of a compose service."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if self.each and not self.url.startswith("http://"):
            raise ValueError("each: certificates are of names and not of addresses; list the servers one by one")
        return self


REPLICAS = TypeAdapter(list[ReplicaSpec])


def read_replicas(path: Path) -> list[ReplicaSpec]:
    """Parse the file. Raises BadRequest naming the error."""
    try:
        specs = REPLICAS.validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise BadRequest(f'{path} does not exist; write a list of replicas there: [{{"url": "http://…"}}]') from error
    except OSError as error:
        raise BadRequest(f"{path} cannot be read ({error.strerror or error}); let this server read it") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BadRequest(f"{path}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from error
    if len({spec.url.rstrip("/") for spec in specs}) < len(specs):
        raise BadRequest(f"{path} names an engine twice; keep one entry of each url")
    return [spec.model_copy(update={"url": spec.url.rstrip("/")}) for spec in specs]


def server_urls(text: str) -> list[str]:
    """Split `http://host:port[,…]` into a list. Raises ValueError that shows the right form."""
    urls = [part.strip().rstrip("/") for part in text.split(",") if part.strip()]
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a server; write http://host:8000[,http://other:8000]")
    if not urls:
        raise ValueError("no server is named; write http://host:8000[,http://other:8000]")
    return urls


def replica_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicas", "--members", type=Path, help="JSON list of servers; read again when it changes")
    parser.add_argument("--servers", help="addresses that are always on the list, separated by commas")
    parser.add_argument(
        "--each", action="append", help="a name that stands for several servers, one for each of its addresses"
    )


def fixed_replicas(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[ReplicaSpec]:
    """Servers named on the command line. Exits with a message when it names neither server nor file."""
    if not (given.servers or given.each or given.replicas):
        parser.error("no server is named: give --replicas FILE, --servers URL[,URL] or --each URL")
    option = "--servers"
    try:
        found = [ReplicaSpec(url=url) for url in (server_urls(given.servers) if given.servers else ())]
        option = "--each"
        names = [url for text in given.each or () for url in server_urls(text)]
        return found + [ReplicaSpec(url=url, each=True) for url in names]
    except ValidationError as error:
        parser.error(f"{option}: {error.errors()[0]['msg']}")
    except ValueError as error:
        parser.error(f"{option}: {error}")


class Listed(Protocol):
    """One server in the process that uses it."""

    spec: ReplicaSpec
    draining: bool
    """Removed from the list: running requests finish, no new ones arrive."""


M = TypeVar("M", bound=Listed)


class ReplicaRegistry(Generic[M]):
    """The servers in use. A server removed from the list is marked and stays until its owner has drained it (`forget`)."""

    def __init__(
        self,
        make: Callable[[ReplicaSpec], M],
        *,
        file: Path | None = None,
        fixed: Sequence[ReplicaSpec] = (),
        lends: bool = False,
    ) -> None:
        """`fixed` servers are used whatever the file says, which then need not exist. `lends` allows production
        servers."""
        self._make, self._file, self._fixed, self._lends = make, file, list(fixed), lends
        self._stamp: tuple[int, int] | None = None
        """Modification time and size of the file when last read."""
        self._read: list[ReplicaSpec] = []
        self._names = Names()
        self._wrong = ""
        self.replicas: list[M] = []

    @property
    def problem(self) -> str:
        """Error in the list, or empty. The previous servers stay in use meanwhile."""
        return "; ".join(filter(None, [self._wrong, *self._names.problems.values()]))

    @property
    def where(self) -> str:
        """Human-readable place where a server is added."""
        return str(self._file) if self._file else "the command line (--servers)"

    async def refresh(self) -> None:
        """Reread the list: mark removed servers and add new ones."""
        self._reread()
        wanted = await self._names.expanded([*self._fixed, *self._read])
        by_url = {spec.url: spec for spec in reversed(wanted)}  # the first entry of an address counts
        for replica in self.replicas:
            leaves = replica.spec.url not in by_url
            if leaves != replica.draining:
                log.info("%s %s", replica.spec.url, "leaves" if leaves else "stays after all")
            replica.draining = leaves
            replica.spec = by_url.get(replica.spec.url, replica.spec)
        present = {replica.spec.url for replica in self.replicas}
        for spec in reversed(by_url.values()):
            if spec.url not in present:
                log.info("%s joins", spec.url)
                self.replicas.append(self._make(spec))

    def forget(self, replica: M) -> None:
        self.replicas.remove(replica)

    def close(self) -> None:
        self._names.close()

    def _reread(self) -> None:
        if self._file is None:
            return
        try:
            found = self._file.stat()
        except FileNotFoundError:
            if self._fixed:
                self._read, self._stamp, self._wrong = [], None, ""
                return
            found = None
        except OSError as error:
            self._wrong = f"{self._file} cannot be read ({error.strerror or error}); let this server read it"
            return
        stamp = (found.st_mtime_ns, found.st_size) if found else None
        if stamp is not None and stamp == self._stamp:
            return
        try:
            specs = read_replicas(self._file)
            if not self._lends and any(spec.production for spec in specs):
                raise BadRequest(
                    f"{self._file}: production: only a router borrows servers of others; leave it out, or list that server "
                    "in the members of a router"
                )
        except ServerError as error:
            self._wrong = str(error)  # those that it had stay
            return
        self._read, self._stamp, self._wrong = specs, stamp, ""


class Names:
    """Addresses of names that resolve to several servers, refreshed every `RESOLVE_SECONDS`."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self._found: dict[str, list[str]] = {}
        self._asked: dict[str, float] = {}
        self._thread = ThreadPoolExecutor(1, "names")  # of our own: a name server that hangs holds up nothing else

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def expanded(self, specs: Iterable[ReplicaSpec]) -> list[ReplicaSpec]:
        found: list[ReplicaSpec] = []
        names = []
        for spec in specs:
            if not spec.each:
                found.append(spec)
                continue
            names.append(spec.url)
            if time.monotonic() - self._asked.get(spec.url, -RESOLVE_SECONDS) >= RESOLVE_SECONDS:
                await self._ask(spec.url)
                self._asked[spec.url] = time.monotonic()
            found += [spec.model_copy(update={"url": url, "each": False}) for url in self._found.get(spec.url, [])]
        self.problems = {name: words for name, words in self.problems.items() if name in names}
        return found

    async def _ask(self, url: str) -> None:
        """Resolve a name; keep the previous addresses when the look-up fails, because their servers may be up."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                answers = await loop.run_in_executor(
                    self._thread, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                )
        except (OSError, TimeoutError) as error:
            why = error.strerror if isinstance(error, socket.gaierror) else "no answer in time"
            self.problems[url] = (
                f"the name {host} of {url} has no address now ({why}); start what it names, or correct the list"
            )
            return
        self.problems.pop(url, None)
        # A machine with addresses of both kinds is still one server.
        first = {socket.AF_INET: 0, socket.AF_INET6: 1}
        kind = min((answer[0] for answer in answers if answer[0] in first), key=first.__getitem__, default=None)
        addresses = sorted({str(answer[4][0]) for answer in answers if answer[0] == kind})
        self._found[url] = [f"http://{f'[{one}]' if ':' in one else one}:{port}" for one in addresses]
