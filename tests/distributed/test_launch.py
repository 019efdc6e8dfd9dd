"""Ranks under torchrun: a rank that is killed costs time and nothing else, and the run's process keeps the last word."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import ParallelConfig
from trainer.distributed.elastic.launch import run_stage_on_ranks
from trainer.distributed.elastic.rpc import Answer, Call, Server
from trainer.errors import BatchTimeout
from trainer.learning.token_export import TrainedGroup
from trainer.rl.stage import run_rl
from trainer.weights import WeightStore


def parents() -> dict[int, int]:
    """Parent of every process of this machine."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):  # it has just ended
                continue
    return found


def rank_process(rank: int) -> int:
    """The process below this one that is that rank."""
    above = parents()
    for pid in above:
        line, at = [], pid
        while at := above.get(at, 0):
            line.append(at)
        if os.getpid() in line:
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"RANK={rank}".encode() in environment:
                return pid
    raise AssertionError(f"no process is rank {rank}")


class KillingSink(MemorySink):
    """Kills rank 1 when step 3 is done, once."""

    killed = False

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        super().metrics(step, values)
        if step == 3 and not self.killed:
            self.killed = True
            os.kill(rank_process(1), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_rank_restarts_from_the_last_checkpoint_and_the_run_is_that_of_one_process(tmp_path: Path) -> None:
    model = policies.load_model(BASE_POLICY)
    source = ListSource([make_group(model, index) for index in range(8)], per_step=2)
    config = small_config(parallel=ParallelConfig(world_size=2, dp_shard=2, async_checkpoint=True))
    sink, kept = KillingSink(), list[TrainedGroup]()
    result = run_stage_on_ranks(
        policy_dir=BASE_POLICY,
        config=config,
        seed=0,
        source=source,
        sink=sink,
        store=str(tmp_path / "weights"),
        checkpoints=tmp_path / "checkpoints",
        keep_streams=kept.extend,
    )
    assert (result.outcome, result.step) == ("completed", 4)
    assert sink.killed and any("resumed from the checkpoint of step 2" in text for _, text in sink.events)
    assert source.asked == [1, 2, 3, 3, 4], "the step after the checkpoint again, on the same batch"
    assert sink.checkpoints == [(2, False), (4, True)]

    alone, store = MemorySink(), WeightStore(tmp_path / "alone", dtype="float32")
    again = list[TrainedGroup]()
    run_rl(
        policy_dir=BASE_POLICY,
        config=small_config(),
        seed=0,
        source=source,
        sink=alone,
        store=store,
        checkpoints=CheckpointStore(tmp_path / "alone-checkpoints", keep=1),
        keep_streams=again.extend,
    )
    for step in range(1, 5):
        for name in ("optim/loss", "optim/grad_norm", "policy/entropy", "tokens/trained"):
            assert sink.values[step][name] == pytest.approx(alone.values[step][name], rel=2e-3, abs=1e-4), (step, name)
    mine, theirs = WeightStore(tmp_path / "weights").load(4).state, store.load(4).state
    assert mine.keys() == theirs.keys()
    moved = [float((mine[name] - theirs[name]).abs().mean()) for name in mine]
    assert max(moved) < 0.02 * config.optimizer.learning_rate
    exported = policies.load_model(tmp_path / "checkpoints" / "step-000004" / "policy").state_dict()
    assert all(torch.equal(exported[name], tensor) for name, tensor in mine.items())
    last = {group.prompt_index: group for group in kept}
    for group in again:
        for one, other in zip(last[group.prompt_index].samples, group.samples, strict=True):
            assert one.digest == other.digest and one.array("advantages") == pytest.approx(other.array("advantages"))


def test_what_source_and_sink_raise_ends_the_stage_where_they_are() -> None:
    server = Server(ListSource([], per_step=1), MemorySink(), None)
    here, there = Pipe()
    asking = threading.Thread(
        target=lambda: there.send_bytes(Call(name="next_batch", arguments=[1, 2.5]).model_dump_json().encode())
    )
    asking.start()
    server.answer(here)
    asking.join()
    answer = Answer.model_validate_json(there.recv_bytes())
    assert answer.error == "no batch for step 1 within 2.5 s"
    assert isinstance(server.raised, BatchTimeout)


def test_streams_reach_the_run() -> None:
    kept: list[Sequence[TrainedGroup]] = []
    server = Server(ListSource([], per_step=1), MemorySink(), kept.append)
    group = TrainedGroup(prompt_index=3, step=1, samples=[])
    here, there = Pipe()
    there.send_bytes(Call(name="keep_streams", arguments=[[group.model_dump(mode="json")]]).model_dump_json().encode())
    server.answer(here)
    assert kept == [[group]] and Answer.model_validate_json(there.recv_bytes()).error is None
