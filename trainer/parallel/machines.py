"""Several machines: how torchrun's agents of one run meet, and what one machine tells the others about the run.

The machine that has the run writes an invitation into a folder that all of them see (`follow.py` waits for it there); it
goes when the run ends, and the others' agents with it. While its process lives it is touched: an invitation that is silent
is of a machine that was lost, and nobody follows it.
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
from trainer.parallel.errors import ParallelRefused
from trainer.parallel.rendezvous import BACKEND

INVITATION = "invitation.json"
BEAT_SECONDS = 5.0
STALE_SECONDS = 30.0
"""Who has not been heard of for so long is gone: the machine that has a run, or one that took a place in it."""
FORGOTTEN_SECONDS = 3600.0
"""When what a lost machine has left is cleared away, by the next that invites."""
JOIN_SECONDS = 600
"""How long machines wait for the fewest that train."""
LAST_CALL_SECONDS = 60
"""How long those wait for the others: a machine whose agent is started again has its place back by then (`follow.py`)."""
ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})")


@dataclass(frozen=True)
class Meeting:
    """Where the machines of this installation meet."""

    endpoint: str
    """host:port of the machine that has the run, as the others reach it; a free port."""
    folder: Path
    """Which every machine sees under the same name, as it does policies and checkpoints."""


class Invitation(BaseModel):
    """To take part in a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    endpoint: str
    machines: int
    machines_least: int
    last_call: int
    ranks_each: int
    restarts: int
    job: Path

    def arguments(self, *, host: bool) -> list[str]:
        """Of torchrun. `host` is the machine that has the run."""
        return [
            *("--rdzv-backend", BACKEND, "--rdzv-id", self.id, "--rdzv-endpoint", self.endpoint),
            *("--rdzv-conf", f"is_host={int(host)},join_timeout={JOIN_SECONDS},last_call_timeout={self.last_call}"),
            *("--nnodes", f"{self.machines_least}:{self.machines}", "--nproc-per-node", str(self.ranks_each)),
            *("--max-restarts", str(self.restarts), "-m", "trainer.parallel.worker", str(self.job)),
        ]


def check(config: ParallelConfig, meeting: Meeting | None) -> Meeting:
    """Raises ParallelRefused when machines could not meet."""
    if meeting is None or not meeting.endpoint:
        raise ParallelRefused(
            f"parallel.machines={config.machines} needs an address at which the others reach this machine, and none is set: "
            "set OPENCOMPOSER_TRAINER_ENDPOINT to host:port, or machines to 1"
        )
    found = ENDPOINT.fullmatch(meeting.endpoint)
    if not found or not 0 < int(found[2]) < 65536:
        raise ParallelRefused(
            f"OPENCOMPOSER_TRAINER_ENDPOINT: {meeting.endpoint!r} is no address of the form host:port; correct it"
        )
    return meeting


@contextmanager
def shared_folder(meeting: Meeting) -> Iterator[Path]:
    """A new one for one run; it goes with the block."""
    for left in meeting.folder.glob(f"*/{INVITATION}"):
        with suppress(FileNotFoundError):  # its run has just ended
            if silent(left, FORGOTTEN_SECONDS):
                shutil.rmtree(left.parent, ignore_errors=True)
    folder = meeting.folder / secrets.token_hex(8)
    folder.mkdir(parents=True, mode=0o700)
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(folder / INVITATION, over), daemon=True)
    beating.start()
    try:
        yield folder
    finally:
        over.set()
        beating.join()
        shutil.rmtree(folder, ignore_errors=True)


def silent(path: Path, seconds: float = STALE_SECONDS) -> bool:
    """Whether whose file this is has not touched it for so long. Raises FileNotFoundError."""
    return time.time() - path.stat().st_mtime > seconds


def _beat(path: Path, over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        with suppress(OSError):  # nobody is invited yet, or the shared disk is away: the next beat tells
            os.utime(path)


def invite(folder: Path, config: ParallelConfig, meeting: Meeting) -> Invitation:
    """Tell the other machines of the job that lies in `folder`."""
    invitation = Invitation(
        id=folder.name,
        endpoint=meeting.endpoint,
        machines=config.machines,
        machines_least=config.least,
        last_call=LAST_CALL_SECONDS,
        ranks_each=config.ranks_each,
        restarts=config.restarts,
        job=folder / "job.json",
    )
    new = folder / f".{INVITATION}"
    new.write_text(invitation.model_dump_json(), encoding="utf-8")
    new.rename(folder / INVITATION)
    return invitation
