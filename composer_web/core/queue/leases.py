"""Leases in Postgres: at most one owner per resource, and a fencing token that rejects writes of former owners."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from django.db import InterfaceError, OperationalError, connection, connections

from composer_web.core.models import Lease

log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another worker holds the resource. Work done since must not be written."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease taken by this process. `lost` is set once another owner has it."""

    resource: str
    owner: str
    token: int
    seconds: float
    lost: threading.Event = field(default_factory=threading.Event, compare=False)
    released: threading.Event = field(default_factory=threading.Event, compare=False)


def identity(kind: str, name: str = "") -> str:
    """Owner name: stable for a supervised `name`, else unique to this process."""
    host = socket.gethostname()
    return f"{kind}@{host}/{name or os.getpid()}"


def take(resource: str, *, owner: str, seconds: float, takeover: bool = False) -> Held | None:
    """Take a free or expired lease, None when it is held. `takeover`: also one held under the same owner name,
    for a supervised process whose earlier incarnation is certainly dead. Each take has a higher token."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO ops_lease AS l (resource, owner, token, taken_at, heartbeat_at, expires_at)
            VALUES (%(resource)s, %(owner)s, 1, clock_timestamp(), clock_timestamp(),
                    clock_timestamp() + %(seconds)s * interval '1 second')
            ON CONFLICT (resource) DO UPDATE SET owner = EXCLUDED.owner, token = l.token + 1, taken_at = clock_timestamp(),
                heartbeat_at = clock_timestamp(), expires_at = EXCLUDED.expires_at
            WHERE l.expires_at < clock_timestamp() OR l.owner = '' OR (%(takeover)s AND l.owner = EXCLUDED.owner)
            RETURNING token
            """,
            {"resource": resource, "owner": owner, "seconds": seconds, "takeover": takeover},
        )
        row = cursor.fetchone()
    return Held(resource, owner, row[0], seconds) if row else None


def beat(held: list[Held]) -> list[Held]:
    """Extend leases by their `seconds`. Returns the lost ones, whose token is no longer the newest."""
    lost = []
    for lease in held:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE ops_lease SET heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + %s * interval '1 second'"
                " WHERE resource = %s AND token = %s AND owner <> ''",
                [lease.seconds, lease.resource, lease.token],
            )
            if cursor.rowcount == 0:
                lost.append(lease)
    return lost


def require(held: Held) -> None:
    """Inside a transaction: lock the lease and verify that it is still held. Raises LeaseLost."""
    row = Lease.objects.select_for_update().filter(resource=held.resource).values("token", "owner").first()
    if row is None or row["token"] != held.token or not row["owner"]:
        held.lost.set()
        raise LeaseLost(f"{held.resource} was taken from {held.owner} (token {held.token})")


@contextlib.contextmanager
def each_free(resources: Iterable[str], *, owner: str, seconds: float) -> Iterator[dict[str, Held]]:
    """Take those of several resources that nobody holds, keep them alive during the block, and release them."""
    taken = {name: held for name in resources if (held := take(name, owner=owner, seconds=seconds)) is not None}
    for held in taken.values():
        keeper.keep(held)
    try:
        yield taken
    finally:
        for held in taken.values():
            keeper.drop(held)
            release(held)


_current: ContextVar[Held | None] = ContextVar("lease", default=None)


@contextlib.contextmanager
def under(held: Held) -> Iterator[None]:
    """Run the block under this lease; `fence` verifies it."""
    before = _current.set(held)
    try:
        yield
    finally:
        _current.reset(before)


def fence() -> None:
    """Inside a transaction, before a write: verify the current lease, if any. Raises LeaseLost."""
    if (held := _current.get()) is not None:
        require(held)


def token() -> int:
    """Fencing token of the current lease; 0 without a lease."""
    held = _current.get()
    return held.token if held is not None else 0


def check() -> None:
    """Check between two steps of long work that the lease is still held. Raises LeaseLost."""
    held = _current.get()
    if held is not None and held.lost.is_set():
        raise LeaseLost(f"{held.resource} was taken from {held.owner} (token {held.token})")


def release(held: Held) -> None:
    """Release the lease if it is still held. The token remains, so that a later owner gets a higher one."""
    held.released.set()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ops_lease SET owner = '', expires_at = clock_timestamp() WHERE resource = %s AND token = %s",
            [held.resource, held.token],
        )


def is_held(resource: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM ops_lease WHERE resource = %s AND owner <> '' AND expires_at >= clock_timestamp()",
            [resource],
        )
        return cursor.fetchone() is not None


class Keeper:
    """Thread that renews all leases of this process. It keeps retrying while Postgres is away."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], Held] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, held: Held) -> None:
        with self._lock:
            self._held[held.resource, held.token] = held
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)
                self._thread.start()
        self._wake.set()

    def drop(self, held: Held) -> None:
        with self._lock:
            self._held.pop((held.resource, held.token), None)

    def resources(self) -> list[str]:
        """Resources whose leases this process holds."""
        with self._lock:
            return [resource for resource, _ in self._held]

    def _run(self) -> None:
        while True:
            with self._lock:
                held = list(self._held.values())
            pause = min((lease.seconds for lease in held), default=30.0) / 3
            try:
                for lease in beat(held):
                    self.drop(lease)
                    if not lease.released.is_set():
                        log.warning("lost the lease of %s", lease.resource)
                        lease.lost.set()
            except (OperationalError, InterfaceError) as error:
                log.warning("leases are not extended: %s", str(error).strip())
                pause = 1.0
            finally:
                connections.close_all()
            self._wake.wait(pause)
            self._wake.clear()


keeper = Keeper()
