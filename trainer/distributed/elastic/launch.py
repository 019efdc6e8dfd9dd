"""Launches the ranks of a run with torchrun and serves as their source and sink until they end.

torchrun runs alone on this node (`--standalone`) or meets other nodes (`nodes.py`). It watches its processes and
restarts all of them when one dies, at most `parallel.max_restarts` times.
"""

from __future__ import annotations

import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from trainer.config import ParallelConfig, Stage
from trainer.distributed.elastic.nodes import RendezvousConfig, check, request_nodes, shared_folder
from trainer.distributed.elastic.parent import RANKS_LOCK
from trainer.distributed.elastic.rpc import KEY, Job, Server
from trainer.errors import RanksLost, StageError
from trainer.learning.token_export import TrainedGroup
from trainer.sft.expert_episodes import ExpertEpisode
from trainer.stages.base import GroupSource, StageResult, StageSink

POLL_SECONDS = 0.1
GOODBYE_SECONDS = 20.0
"""Seconds for torchrun to end its processes before they are killed."""
TAIL = 2000
"""Characters of the ranks' output shown in an error."""


def run_stage_on_ranks(
    *,
    policy_dir: Path,
    config: Stage,
    seed: int,
    sink: StageSink,
    checkpoints: Path,
    source: GroupSource | None = None,
    store: str = "",
    corpora: Path | None = None,
    codebase: Path | None = None,
    episodes: Sequence[ExpertEpisode] = (),
    dataset: Path | None = None,
    keep_streams: Callable[[Sequence[TrainedGroup]], None] | None = None,
    rendezvous: RendezvousConfig | None = None,
    lock: Path | None = None,
    started: Callable[[], None] = lambda: None,
) -> StageResult:
    """Run the stage on `config.parallel.world_size` processes on one or more nodes; fewer while nodes are missing,
    where allowed.

    Raises StageError and the errors of source and sink. `source` and `store` are for reinforcement learning, `corpora`
    and `codebase` for mid-training and SFT, `episodes` or `dataset` for SFT, `rendezvous` for several nodes. Ranks of this
    machine hold `lock` until they end. `started` is called at each start of the ranks.
    """
    server = Server(source, sink, keep_streams)
    several = check(config.parallel, rendezvous) if config.parallel.max_nodes > 1 else None
    with (
        tempfile.TemporaryDirectory(prefix="ranks-") as place,
        shared_folder(several) if several else nullcontext(Path(place)) as seen,
    ):
        folder = Path(place)
        job = Job(
            stage=config,
            seed=seed,
            policy_dir=policy_dir,
            store=store,
            checkpoints=checkpoints,
            corpora=corpora,
            codebase=codebase,
            episodes=seen / "episodes" if episodes else None,
            dataset=dataset,
            socket=folder / "socket",
        )
        if job.episodes:
            job.episodes.write_text("".join(f"{one.model_dump_json()}\n" for one in episodes), encoding="utf-8")
        (seen / "job.json").write_text(job.model_dump_json(), encoding="utf-8")
        key = secrets.token_bytes(32)
        arguments = (
            request_nodes(seen, config.parallel, several).arguments(host=True)
            if several
            else _on_this_machine(config.parallel, seen / "job.json")
        )
        with Listener(str(job.socket), family="AF_UNIX", authkey=key) as listener, (folder / "log").open("w+b") as log:
            agent = subprocess.Popen(
                [sys.executable, "-m", "trainer.distributed.elastic.torchrun", *arguments],
                env=os.environ | {KEY: key.hex()} | ({RANKS_LOCK: str(lock)} if lock else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                _serve(listener, server, agent, started)
            finally:
                end(agent)
            if server.raised is not None:
                raise server.raised
            if server.result is None:
                raise RanksLost(_why(log.name, config, agent.returncode))
    if "error" in server.result:
        number = server.result.get("errno")
        raise StageError(server.result["error"]) from (None if number is None else OSError(number, os.strerror(number)))
    checkpoint = server.result["checkpoint"]
    return StageResult(server.result["outcome"], server.result["step"], Path(checkpoint) if checkpoint else None)


def _on_this_machine(config: ParallelConfig, job: Path) -> list[str]:
    return [
        *("--standalone", "--nproc-per-node", str(config.world_size), "--max-restarts", str(config.max_restarts)),
        *("-m", "trainer.distributed.worker", str(job)),
    ]


def _serve(listener: Listener, server: Server, agent: subprocess.Popen[bytes], started: Callable[[], None]) -> None:
    """Serve until the ranks have ended, or source or sink has raised. Rank 0 reconnects after a restart."""
    arrivals: queue.Queue[Connection] = queue.Queue()
    threading.Thread(target=_accept, args=(listener, arrivals), daemon=True).start()
    current: Connection | None = None
    while server.result is None and server.raised is None:
        try:
            if current is None:
                current = arrivals.get(timeout=POLL_SECONDS)
                started()
            elif current.poll(POLL_SECONDS):
                server.answer(current)
        except queue.Empty:
            pass
        except (EOFError, OSError):
            current = None
        if agent.poll() is not None and not (current and current.poll()):
            return


def _accept(listener: Listener, arrivals: queue.Queue[Connection]) -> None:
    while True:
        try:
            arrivals.put(listener.accept())
        except OSError:  # the listener was closed
            return


def end(agent: subprocess.Popen[bytes]) -> None:
    """Wait for ranks that have reported their result; terminate others, then kill them."""
    for wait, number in ((2.0, signal.SIGTERM), (GOODBYE_SECONDS, signal.SIGKILL)):
        try:
            agent.wait(wait)
            return
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, number) if number == signal.SIGKILL else agent.send_signal(number)
    agent.wait()


def _why(log: str, config: Stage, code: int | None) -> str:
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    if config.parallel.max_nodes > 1:
        text += "\n(ranks of other machines say theirs there)"
    return (
        f"the {config.parallel.world_size} ranks ended with {code} after at most {config.parallel.max_restarts} restarts; "
        f"their last words: {text[-TAIL:].strip() or 'none'}"
    )
