"""Names of the queues that dispatch training: one a pool of train workers, and one a worker.

`train` is the default pool's and `train.<pool>` another pool's: any free worker of the pool takes a run from there.
`train.worker.<host>.<name>` is one worker's own: messages about the run that it trains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

DEFAULT = "train"
OWN = "train.worker."


def pool_queue(pool: str) -> str:
    return f"{DEFAULT}.{pool}" if pool else DEFAULT


def pool_of(config: dict[str, Any]) -> str:
    """Pool named in a stored run configuration. Empty for the default pool."""
    return str(config.get("pool") or "")


def worker_queue(owner: str) -> str:
    """Queue of the worker that holds leases as `owner` (kind@host/name)."""
    _, _, place = owner.partition("@")
    return OWN + re.sub(r"[^A-Za-z0-9_.-]", ".", place)


def is_train_queue(name: str) -> bool:
    return name == DEFAULT or name.startswith(f"{DEFAULT}.")


def pool_queues(names: Iterable[str]) -> list[str]:
    """Pool queues among `names`, sorted."""
    return sorted(name for name in names if is_train_queue(name) and not name.startswith(OWN))


def pool_title(queue: str) -> str:
    """Display name of a queue's pool."""
    return queue.removeprefix(f"{DEFAULT}.") if queue != DEFAULT else "default"


def worker_command(queue: str) -> str:
    """Shell command that starts a train worker of a pool's queue."""
    return f"celery -A composer_web worker -Q {queue} --pool threads -c 1"
