"""Machines that come and go: a run trains on those that are there, and is the run of one process whatever they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from torch.distributed.elastic.rendezvous import RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from tests.distributed.test_launch import parents, rank_process
from tests.distributed.test_machines import free_port
from tests.trainer.stages.memory import BASE_POLICY, MemorySink
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, MidtrainConfig, OptimizerConfig, ParallelConfig
from trainer.distributed.elastic import nodes, rendezvous
from trainer.distributed.elastic.launch import run_stage_on_ranks
from trainer.distributed.elastic.node_agent import NodeAgent
from trainer.distributed.elastic.nodes import JOIN_REQUEST, RendezvousConfig, request_nodes, shared_folder, silent
from trainer.distributed.elastic.rendezvous import Rendezvous
from trainer.midtrain.stage import run_midtrain
from trainer.stages.base import StageResult
from trainer.toy.preset import toy_midtrain

pytestmark = pytest.mark.integration

DEADLINE = 300.0
STEPS = 6


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE:g} s: {what}"
        time.sleep(0.05)


class Other:
    """A second machine: the process that waits for runs, and all that it starts."""

    def __init__(self, folder: Path, log: Path) -> None:
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainer.distributed.elastic.node_agent", str(folder)], stdout=out, stderr=out
            )

    def fall_over(self) -> None:
        """Everything of it at once, and nothing is said to anybody."""
        for pid in [*self._below(), self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def _below(self) -> list[int]:
        above, found = parents(), []
        for pid in above:
            at = pid
            while at := above.get(at, 0):
                if at == self.process.pid:
                    found.append(pid)
        return found


class At(MemorySink):
    """Does something when a step is done, once."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        super().__init__()
        self._step, self._act, self._acted = step, act, False
        self.ranks: dict[int, float] = {}
        self.starts = 0

    def started(self) -> None:
        self.starts += 1

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        super().metrics(step, values)
        self.ranks[step] = values["distributed/ranks"]
        if step == self._step and not self._acted:
            self._acted = True
            self._act()


def configuration(**parallel: Any) -> MidtrainConfig:
    sizes = {"world_size": 2, "max_nodes": 2, "min_nodes": 1, "dp_shard": 2, "precision": "float32", "max_restarts": 1}
    return toy_midtrain(
        steps=STEPS, batch_tokens=300, source_share=0.0, parallel=ParallelConfig(**(sizes | parallel)),
        checkpoint=CheckpointConfig(every_steps=2), optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=0),
    )  # fmt: skip


def train(config: MidtrainConfig, sink: At, rendezvous: RendezvousConfig, root: Path) -> None:
    result = run_stage_on_ranks(
        policy_dir=BASE_POLICY, config=config, seed=0, sink=sink, checkpoints=root, rendezvous=rendezvous, started=sink.started
    )  # fmt: skip
    assert result == StageResult("completed", STEPS, root / f"step-{STEPS:06d}")


def assert_as_of_one_process(config: MidtrainConfig, sink: MemorySink, folder: Path) -> None:
    alone = MemorySink()
    run_midtrain(
        policy_dir=BASE_POLICY, config=config.model_copy(update={"parallel": ParallelConfig()}), seed=0, sink=alone,
        checkpoints=CheckpointStore(folder, keep=1),
    )  # fmt: skip
    for step in range(1, STEPS + 1):
        for name in ("loss/train", "loss/heldout", "optim/grad_norm", "tokens/trained"):
            if name in alone.values[step]:
                assert sink.values[step][name] == pytest.approx(alone.values[step][name], rel=2e-3), (name, step)


def said(sink: MemorySink) -> list[tuple[str, str]]:
    return [event for event in sink.events if "machines" in event[1]]


ALL = ("info", "trains on all 2 machines: 2 ranks")
ONE = ("warning", "trains on 1 of 2 machines: 1 of 2 ranks; others join when `manage.py ranks` waits there")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_lost_machine_costs_the_steps_since_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "LAST_CALL_SECONDS", 45)
    rendezvous = RendezvousConfig(f"127.0.0.1:{free_port()}", tmp_path / "ranks")
    rendezvous.folder.mkdir()
    other = Other(rendezvous.folder, tmp_path / "log")
    sink = At(3, other.fall_over)
    train(configuration(), sink, rendezvous, tmp_path / "checkpoints")
    assert said(sink) == [ALL, ONE], (tmp_path / "log").read_text()
    assert any("resumed from the checkpoint of step 2" in text for _, text in sink.events)
    assert sink.ranks == {1: 2, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1} and sink.starts == 2
    assert_as_of_one_process(configuration(), sink, tmp_path / "one")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_machine_that_comes_later_joins_and_no_restart_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents end their ranks one after the other: those of the later ones fail first, and none may take it for a failure."""
    monkeypatch.setattr(nodes, "LAST_CALL_SECONDS", 1)
    rendezvous = RendezvousConfig(f"127.0.0.1:{free_port()}", tmp_path / "ranks")
    others = [Other(rendezvous.folder, tmp_path / "log-1")]

    def come() -> None:
        first = rank_process(0)
        assert list(rendezvous.folder.glob(f"*/{JOIN_REQUEST}")), "it still asks for who is missing"
        others.append(Other(rendezvous.folder, tmp_path / "log-2"))
        until(lambda: first not in parents(), "the ranks are started again, with the new ones")

    sink, config = At(3, come), configuration(world_size=3, dp_shard=3, max_nodes=3, min_nodes=2, max_restarts=0)
    try:
        train(config, sink, rendezvous, tmp_path / "checkpoints")
    finally:
        for other in others:
            other.leave()
    assert said(sink) == [
        ("warning", "trains on 2 of 3 machines: 2 of 3 ranks; others join when `manage.py ranks` waits there"),
        ("info", "trains on all 3 machines: 3 ranks"),
    ], (tmp_path / "log-2").read_text()
    assert sink.ranks == {1: 2, 2: 2, 3: 3, 4: 3, 5: 3, 6: 3} and sink.starts == 2
    assert_as_of_one_process(config, sink, tmp_path / "one")


def aged(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_a_run_is_heard_of_and_what_lost_machines_left_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "BEAT_SECONDS", 0.01)
    rendezvous, config = RendezvousConfig("127.0.0.1:29400", tmp_path), configuration().parallel
    for name, seconds in (("forgotten", 2 * nodes.FORGOTTEN_SECONDS), ("lost", 2 * nodes.STALE_SECONDS)):
        (tmp_path / name).mkdir()
        request_nodes(tmp_path / name, config, rendezvous)
        aged(tmp_path / name / JOIN_REQUEST, seconds)
    with shared_folder(rendezvous) as folder:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["lost", folder.name])
        request_nodes(folder, config, rendezvous)
        aged(folder / JOIN_REQUEST, 2 * nodes.STALE_SECONDS)
        until(lambda: not silent(folder / JOIN_REQUEST), "it is touched")
        assert silent(tmp_path / "lost" / JOIN_REQUEST)


def test_nobody_follows_a_machine_that_was_lost(tmp_path: Path) -> None:
    """Its successor may meet at the same address, and where one machine is enough its followers would begin without it."""
    rendezvous = RendezvousConfig(f"127.0.0.1:{free_port()}", tmp_path)
    request_nodes(tmp_path, configuration().parallel, rendezvous)
    request, place = tmp_path / JOIN_REQUEST, tmp_path / "taken-1"
    agent = NodeAgent(tmp_path)
    aged(request, 2 * nodes.STALE_SECONDS)
    agent._answer(request)
    assert not place.exists()
    aged(request, 0)
    following = threading.Thread(target=agent._answer, args=(request,))
    following.start()
    until(place.exists, "it takes part")
    aged(request, 2 * nodes.STALE_SECONDS)
    following.join(DEADLINE)
    assert not following.is_alive() and not place.exists()


class Known:
    """torchrun's own handler, as far as ours asks it."""

    def __init__(self, machines: int) -> None:
        self.waiting, self.closed, self.lost = 0, False, False
        self._state_holder = SimpleNamespace(
            state=SimpleNamespace(participants=dict.fromkeys(range(machines)), round=7)
        )

    def next_rendezvous(self) -> Any:
        if self.lost:
            raise RendezvousTimeoutError
        return SimpleNamespace(store=None, rank=0, world_size=len(self._state_holder.state.participants))

    def num_nodes_waiting(self) -> int:
        return self.waiting

    def shutdown(self) -> bool:
        self.closed = True
        return True


def test_a_machine_that_fell_silent_is_missed_and_one_that_restarts_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rendezvous.ROUND, "")
    now = [100.0]
    monkeypatch.setattr(rendezvous.time, "monotonic", lambda: now[0])
    known = Known(2)
    met = Rendezvous(cast(DynamicRendezvousHandler, known), "gpu-1:29400")
    found = met.next_rendezvous()
    assert found.bootstrap_store_info is not None
    assert (found.bootstrap_store_info.master_addr, found.bootstrap_store_info.master_port) == ("gpu-1", 29400)
    assert os.environ[rendezvous.ROUND] == "7"
    here = known._state_holder.state.participants
    assert met.num_nodes_waiting() == 0
    del here[1]
    assert met.num_nodes_waiting() == 0, "its ranks may be about to fail over it, which is counted"
    here[1] = None
    now[0] += rendezvous.SILENT_SECONDS + 1
    assert met.num_nodes_waiting() == 0, "it is back"
    del here[1]
    assert met.num_nodes_waiting() == 0
    now[0] += rendezvous.SILENT_SECONDS + 1
    assert met.num_nodes_waiting() == 1
    assert met.next_rendezvous().world_size == 1 and met.num_nodes_waiting() == 0, "those that are left go on"
    known.waiting = 2
    assert met.num_nodes_waiting() == 2


def test_an_agent_that_lost_the_others_does_not_end_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rendezvous.ROUND, "")
    known = Known(2)
    met = Rendezvous(cast(DynamicRendezvousHandler, known), "gpu-1:29400")
    known.lost = True
    with pytest.raises(RendezvousTimeoutError):
        met.next_rendezvous()
    assert met.shutdown() and not known.closed
    known.lost = False
    met.next_rendezvous()
    assert met.shutdown() and known.closed, "its ranks ended"
