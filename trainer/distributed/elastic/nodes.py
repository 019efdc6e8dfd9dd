"""Elastic training over several nodes: the rendezvous of torchrun's agents, and the join request that starts them.

The host node writes a join request into a folder that all nodes share (`node_agent.py` waits for it there). When the run
ends, the request is removed and the other nodes' agents stop. The host touches it while its process lives; nodes
ignore a request that has gone stale, because its host was lost.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trainer.config import ParallelConfig
from trainer.distributed.elastic.rendezvous import BACKEND
from trainer.errors import ParallelRefused

JOIN_REQUEST = "join.json"
BEAT_SECONDS = 5.0
STALE_SECONDS = 30.0
"""Seconds of silence after which a host, or a node that joined a run, counts as lost."""
FORGOTTEN_SECONDS = 3600.0
"""Age at which the next inviting host deletes what a lost node has left."""
JOIN_SECONDS = 600
"""How long nodes wait until the minimum number has joined."""
LAST_CALL_SECONDS = 60
"""How long those nodes then wait for others; long enough for a restarted agent to rejoin (`node_agent.py`)."""
ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})")


@dataclass(frozen=True)
class RendezvousConfig:
    """Rendezvous settings of this installation."""

    endpoint: str
    """host:port at which the other nodes reach the host node; a free port."""
    folder: Path
    """Shared folder; every node sees it under the same path, as it does policies and checkpoints."""


class JoinRequest(BaseModel):
    """Invitation to join a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    endpoint: str
    machines: int
    min_nodes: int
    last_call: int
    ranks_each: int
    restarts: int
    job: Path

    def arguments(self, *, host: bool) -> list[str]:
        """Arguments of torchrun. `host`: this node hosts the run."""
        return [
            *("--rdzv-backend", BACKEND, "--rdzv-id", self.id, "--rdzv-endpoint", self.endpoint),
            *("--rdzv-conf", f"is_host={int(host)},join_timeout={JOIN_SECONDS},last_call_timeout={self.last_call}"),
            *("--nnodes", f"{self.min_nodes}:{self.machines}", "--nproc-per-node", str(self.ranks_each)),
            *("--max-restarts", str(self.restarts), "-m", "trainer.distributed.worker", str(self.job)),
        ]


def check(config: ParallelConfig, rendezvous: RendezvousConfig | None) -> RendezvousConfig:
    """Return the rendezvous settings. Raises ParallelRefused when nodes could not meet."""
    if rendezvous is None or not rendezvous.endpoint:
        raise ParallelRefused(
            f"parallel.max_nodes={config.max_nodes} needs an address at which the others reach this machine, and none is set: "
            "set OPENCOMPOSER_TRAINER_ENDPOINT to host:port, or machines to 1"
        )
    found = ENDPOINT.fullmatch(rendezvous.endpoint)
    if not found or not 0 < int(found[2]) < 65536:
        raise ParallelRefused(
            f"OPENCOMPOSER_TRAINER_ENDPOINT: {rendezvous.endpoint!r} is no address of the form host:port; correct it"
        )
    return rendezvous


@contextmanager
def shared_folder(rendezvous: RendezvousConfig) -> Iterator[Path]:
    """Create a shared folder for one run and delete it at the end of the block."""
    for left in rendezvous.folder.glob(f"*/{JOIN_REQUEST}"):
        with suppress(FileNotFoundError):  # its run has just ended
            if silent(left, FORGOTTEN_SECONDS):
                shutil.rmtree(left.parent, ignore_errors=True)
    folder = rendezvous.folder / secrets.token_hex(8)
    folder.mkdir(parents=True, mode=0o700)
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(folder / JOIN_REQUEST, over), daemon=True)
    beating.start()
    try:
        yield folder
    finally:
        over.set()
        beating.join()
        shutil.rmtree(folder, ignore_errors=True)


def silent(path: Path, seconds: float = STALE_SECONDS) -> bool:
    """Whether the file's owner has not touched it for `seconds`. Raises FileNotFoundError."""
    return time.time() - path.stat().st_mtime > seconds


def _beat(path: Path, over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        with suppress(OSError):  # nobody is invited yet, or the shared disk is away: the next beat tells
            os.utime(path)


def request_nodes(folder: Path, config: ParallelConfig, rendezvous: RendezvousConfig) -> JoinRequest:
    """Invite the other nodes to the job in `folder`."""
    request = JoinRequest(
        id=folder.name,
        endpoint=rendezvous.endpoint,
        machines=config.max_nodes,
        min_nodes=config.fewest_nodes,
        last_call=LAST_CALL_SECONDS,
        ranks_each=config.ranks_per_node,
        restarts=config.max_restarts,
        job=folder / "job.json",
    )
    new = folder / f".{JOIN_REQUEST}"
    new.write_text(request.model_dump_json(), encoding="utf-8")
    new.rename(folder / JOIN_REQUEST)
    return request
