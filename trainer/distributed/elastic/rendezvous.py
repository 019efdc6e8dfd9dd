"""Rendezvous handler for elastic runs: torchrun's `c10d`, extended for nodes that join and leave.

The ranks' store is on the host node: torchrun sorts the nodes by name and takes the first, and nodes that remain keep
the existing one. Each round gives the ranks a name of its own, because each agent counts its own restarts only. The
handler detects silent nodes itself: their ranks' connections may stay open for as long as a collective waits.
"""

from __future__ import annotations

import os
import time

from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, create_handler
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

BACKEND = "opencomposer"
ROUND = "OPENCOMPOSER_RANKS_ROUND"
"""Environment variable of the ranks: one value for all that train together, new at each start."""
SILENT_SECONDS = 10.0
"""Grace period after torchrun has missed a node's heartbeats (15 s). Ranks may fail over the loss themselves meanwhile,
which counts as a restart; silence does not.
"""


class Rendezvous(RendezvousHandler):
    """Rendezvous handler of one agent."""

    def __init__(self, inner: DynamicRendezvousHandler, endpoint: str) -> None:
        self._inner = inner
        self._store = RendezvousStoreInfo(*parse_rendezvous_endpoint(endpoint, default_port=-1))
        self._met = False
        self._machines = 0
        self._missed_since: float | None = None

    def next_rendezvous(self) -> RendezvousInfo:
        self._met = False
        found = self._inner.next_rendezvous()
        self._met, self._machines, self._missed_since = True, found.world_size, None
        os.environ[ROUND] = str(self._inner._state_holder.state.round)
        return RendezvousInfo(found.store, found.rank, found.world_size, self._store)

    def num_nodes_waiting(self) -> int:
        """Number of waiting nodes. Above 0 the agent restarts its ranks with the nodes that are there then."""
        self._met = False
        waiting = self._inner.num_nodes_waiting()
        self._met = True
        return waiting or int(self._one_is_silent())

    def _one_is_silent(self) -> bool:
        if len(self._inner._state_holder.state.participants) >= self._machines:
            self._missed_since = None
            return False
        now = time.monotonic()
        self._missed_since = self._missed_since or now
        return now - self._missed_since > SILENT_SECONDS

    def shutdown(self) -> bool:
        """An agent whose ranks finished or failed too often ends the run; one that lost the others leaves the run to
        them."""
        return self._inner.shutdown() if self._met else True

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._inner.is_closed()

    def set_closed(self) -> None:
        self._inner.set_closed()

    def get_run_id(self) -> str:
        return self._inner.get_run_id()


def create(parameters: RendezvousParameters) -> Rendezvous:
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # no store of the first machine by name: nobody would use it
    backend, store = create_backend(parameters)
    return Rendezvous(create_handler(store, backend, parameters), parameters.endpoint)


def register() -> None:
    """Register this handler with torchrun."""
    rendezvous_handler_registry.register(BACKEND, create)
