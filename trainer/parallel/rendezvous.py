"""How torchrun's agents of several machines meet: its own `c10d`, and what that leaves open where machines come and go.

The ranks' store is that of the machine that has the run: torchrun takes the first machine by name, and those that were there
before keep to the one that was. Each round has a name of its own for the ranks, because agents count their restarts alone.
A machine that has fallen silent is missed here: its ranks' connections may stay open for as long as a collective waits.
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
"""Variable of the ranks: one value for all that train together, and a new one whenever they are started."""
SILENT_SECONDS = 10.0
"""After torchrun has missed a machine's heartbeats (15 s), how long our ranks may take to fail over it themselves: that is
counted as a restart, and silence is not."""


class Rendezvous(RendezvousHandler):
    """Of one agent."""

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
        """Above 0 the agent starts its ranks again, with those that are there then."""
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
        """An agent whose ranks have ended, well or too often, ends the run; one that lost the others leaves it to them."""
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
    """Let torchrun know us."""
    rendezvous_handler_registry.register(BACKEND, create)
