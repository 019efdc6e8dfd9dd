"""Celery tasks of the product: their queue, how long they may take, and what makes a second delivery harmless.

The broker delivers a message again that is not acknowledged within its visibility timeout, also while the first worker
still works on it. Every task therefore declares one of three:

- `seconds`: it ends within so many seconds by its own deadlines, fewer than the timeout.
- `lease`: it may take longer, and runs under this lease, which is kept alive while it runs. A second delivery, and new work
  for the same resource, is asked for again until the lease is free. Where the task writes, `leases.fence` proves the lease,
  so that a worker that was believed dead changes nothing any more.
- `lease` with `inside=True`: the same, where the service that the task calls takes and proves the lease itself.

`long=True` is for tasks that may hold a thread for minutes: one thread of the worker always stays free for short ones, so
that a webhook does not wait behind exports.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery import shared_task

from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue

log = logging.getLogger(__name__)
Function = Callable[..., None]

LEASE_SECONDS = 30.0
"""A silent worker loses the lease of a task after this long."""
AGAIN_SECONDS = 5.0
"""Pause before work is asked for again that could not begin now."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a task declared. Exactly one of `seconds` and `lease` is set."""

    name: str
    queues: tuple[str, ...]
    seconds: float | None
    lease: str
    inside: bool
    long: bool


TASKS: dict[str, Declared] = {}
"""Every task by name, once its module is imported."""


class Threads:
    """The threads of this process that long tasks may take: all but one. Without a bound until a worker says how many
    it has."""

    def __init__(self) -> None:
        self._free: threading.BoundedSemaphore | None = None

    def bound(self, concurrency: int) -> None:
        self._free = threading.BoundedSemaphore(max(1, concurrency - 1))

    def take(self) -> bool:
        return self._free is None or self._free.acquire(blocking=False)

    def give_back(self) -> None:
        if self._free is not None:
            self._free.release()


threads = Threads()


def task(
    name: str,
    *,
    queue: str | tuple[str, ...],
    seconds: float | None = None,
    lease: str = "",
    inside: bool = False,
    long: bool = False,
    **options: Any,
) -> Callable[[Function], Any]:
    """A Celery task `name`, asked for on `queue`. `lease` is a pattern over the task's arguments; `options` are Celery's."""
    assert (seconds is None) != (not lease), f"{name} declares seconds or a lease"
    declared = Declared(name, (queue,) if isinstance(queue, str) else queue, seconds, lease, inside, long)

    def wrap(function: Function) -> Any:
        TASKS[name] = declared
        run = function if inside or not lease else _leased(function, declared)
        return shared_task(name=name, **options)(_apart(run, declared) if long else run)

    return wrap


def _leased(function: Function, declared: Declared) -> Function:
    parameters = inspect.signature(function).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        resource = declared.lease.format(**{**defaults, **kwargs})
        owner = f"{leases.identity('task')}/{threading.get_ident() % 10_000}"
        held = leases.take(resource, owner=owner, seconds=LEASE_SECONDS)
        if held is None:
            log.info("%s: another worker holds %s; asked for again", declared.name, resource)
            _again(declared, kwargs)
            return
        leases.keeper.keep(held)
        try:
            with leases.under(held):
                function(*args, **kwargs)
        except leases.LeaseLost as error:
            log.warning("%s: %s, which goes on", declared.name, error)
        finally:
            leases.keeper.drop(held)
            leases.release(held)

    return run


def _apart(function: Function, declared: Declared) -> Function:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        if not threads.take():
            _again(declared, kwargs)
            return
        try:
            function(*args, **kwargs)
        finally:
            threads.give_back()

    return run


def _again(declared: Declared, kwargs: dict[str, Any]) -> None:
    """The same work a little later; what is asked for again several times meanwhile is sent once."""
    given = hashlib.sha256(repr(sorted(kwargs.items())).encode()).hexdigest()[:32]
    key = f"again:{declared.name}:{given}"
    enqueue(declared.name, kwargs, queue=declared.queues[0], key=key, delay=AGAIN_SECONDS)
