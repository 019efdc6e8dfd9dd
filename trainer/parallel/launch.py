"""Starting the ranks of a run with torchrun, and being their source and sink until they end.

torchrun meets by itself on this machine (`--standalone`), or with those of other machines (`machines.py`), watches its
processes, and starts all of them again when one dies, at most `parallel.restarts` times.
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
from trainer.learning.streams import TrainedGroup
from trainer.parallel.channel import KEY, Job, Server
from trainer.parallel.errors import RanksLost
from trainer.parallel.machines import Meeting, check, invite, shared_folder
from trainer.stages.base import GroupSource, StageError, StageResult, StageSink
from trainer.stages.data import ExpertEpisode

POLL_SECONDS = 0.1
GOODBYE_SECONDS = 20.0
"""How long torchrun has to end its processes before they are killed."""
TAIL = 2000
"""Characters of the ranks' output that an error shows."""


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
    episodes: Sequence[ExpertEpisode] = (),
    dataset: Path | None = None,
    keep_streams: Callable[[Sequence[TrainedGroup]], None] | None = None,
    meeting: Meeting | None = None,
    started: Callable[[], None] = lambda: None,
) -> StageResult:
    """The stage on `config.parallel.ranks` processes, of this machine or of several, or on as many of them as may train while
    machines are missing. Raises StageError, and what source and sink raise.

    `source` and `store` are those of reinforcement learning, `corpora` of mid-training and of what SFT replays,
    `episodes` or `dataset` of SFT, `meeting` of several machines. `started` is called whenever ranks begin.
    """
    server = Server(source, sink, keep_streams)
    several = check(config.parallel, meeting) if config.parallel.machines > 1 else None
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
            episodes=seen / "episodes" if episodes else None,
            dataset=dataset,
            socket=folder / "socket",
        )
        if job.episodes:
            job.episodes.write_text("".join(f"{one.model_dump_json()}\n" for one in episodes), encoding="utf-8")
        (seen / "job.json").write_text(job.model_dump_json(), encoding="utf-8")
        key = secrets.token_bytes(32)
        arguments = (
            invite(seen, config.parallel, several).arguments(host=True)
            if several
            else _on_this_machine(config.parallel, seen / "job.json")
        )
        with Listener(str(job.socket), family="AF_UNIX", authkey=key) as listener, (folder / "log").open("w+b") as log:
            agent = subprocess.Popen(
                [sys.executable, "-m", "trainer.parallel.agent", *arguments],
                env=os.environ | {KEY: key.hex()},
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
        raise StageError(server.result["error"])
    checkpoint = server.result["checkpoint"]
    return StageResult(server.result["outcome"], server.result["step"], Path(checkpoint) if checkpoint else None)


def _on_this_machine(config: ParallelConfig, job: Path) -> list[str]:
    return [
        *("--standalone", "--nproc-per-node", str(config.ranks), "--max-restarts", str(config.restarts)),
        *("-m", "trainer.parallel.worker", str(job)),
    ]


def _serve(listener: Listener, server: Server, agent: subprocess.Popen[bytes], started: Callable[[], None]) -> None:
    """Until the ranks have ended, or source or sink has raised. Rank 0 comes again after a restart."""
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
    """Ranks that have said their result end by themselves; others are told to, and then made to."""
    for wait, number in ((2.0, signal.SIGTERM), (GOODBYE_SECONDS, signal.SIGKILL)):
        try:
            agent.wait(wait)
            return
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, number) if number == signal.SIGKILL else agent.send_signal(number)
    agent.wait()


def _why(log: str, config: Stage, code: int | None) -> str:
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    if config.parallel.machines > 1:
        text += "\n(ranks of other machines say theirs there)"
    return (
        f"the {config.parallel.ranks} ranks ended with {code} after at most {config.parallel.restarts} restarts; "
        f"their last words: {text[-TAIL:].strip() or 'none'}"
    )
