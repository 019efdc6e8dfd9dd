"""Several machines: torchrun's agents meet, the run is that of one process, and whoever has the run has rank 0."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError
from torch.distributed.run import config_from_args, parse_args

from tests.distributed.worlds import run_world
from tests.trainer.stages.memory import BASE_POLICY, MemorySink
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, OptimizerConfig, ParallelConfig
from trainer.distributed.elastic import node_agent, rendezvous
from trainer.distributed.elastic.launch import run_stage_on_ranks
from trainer.distributed.elastic.nodes import RendezvousConfig, check, request_nodes, shared_folder
from trainer.distributed.elastic.rpc import KEY
from trainer.distributed.parallel_dims import process_rank
from trainer.errors import ParallelRefused
from trainer.midtrain.stage import run_midtrain
from trainer.stages.base import StageResult
from trainer.toy.preset import toy_midtrain

TWO = ParallelConfig(world_size=2, dp_shard=2, max_nodes=2, max_restarts=1)


def test_sizes_and_addresses_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValidationError, match="max_nodes=3 does not divide world_size=4"):
        ParallelConfig(world_size=4, dp_shard=4, max_nodes=3)
    for right in ("gpu-1:29400", "10.0.0.7:29400", "[::1]:80"):
        assert check(TWO, RendezvousConfig(right, Path())).endpoint == right
    for config in (None, RendezvousConfig("", Path())):
        with pytest.raises(
            ParallelRefused, match=r"parallel\.max_nodes=2 needs an address .* OPENCOMPOSER_TRAINER_ENDPOINT"
        ):
            check(TWO, config)
    for wrong in ("gpu-1", "http://gpu-1:29400", "gpu-1:0", "gpu-1:70000", ":29400"):
        with pytest.raises(ParallelRefused, match="is no address of the form host:port"):
            check(TWO, RendezvousConfig(wrong, Path()))


def test_settings_reach_torchrun(tmp_path: Path) -> None:
    rendezvous = RendezvousConfig("gpu-1:29400", tmp_path)
    with shared_folder(rendezvous) as folder:
        config = ParallelConfig(world_size=8, dp_shard=8, max_nodes=2, max_restarts=5)
        said = request_nodes(folder, config, rendezvous)
        line = " ".join(said.arguments(host=True))
        for part in (
            "--rdzv-backend opencomposer", "--rdzv-endpoint gpu-1:29400", "--nnodes 2:2", "--nproc-per-node 4",
            "--max-restarts 5", f"--rdzv-id {folder.name}",
            "--rdzv-conf is_host=1,join_timeout=600,last_call_timeout=60", f"-m trainer.distributed.worker {folder / 'job.json'}",
        ):  # fmt: skip
            assert part in line, part
        assert "is_host=0" in " ".join(said.arguments(host=False))
        assert node_agent.JoinRequest.model_validate_json((folder / "join.json").read_text()) == said
        fewer = config.model_copy(update={"min_nodes": 1})
        assert "--nnodes 1:2 --nproc-per-node 4" in " ".join(
            request_nodes(folder, fewer, rendezvous).arguments(host=True)
        )
    assert not folder.exists()


def test_torchrun_reads_them(tmp_path: Path) -> None:
    """Its own reading of the line: what it would start."""
    config = ParallelConfig(world_size=8, dp_shard=8, max_nodes=4, min_nodes=2)
    line = request_nodes(tmp_path, config, RendezvousConfig("gpu-1:29400", tmp_path)).arguments(host=False)
    found, _, rest = config_from_args(parse_args(line))
    assert (found.min_nodes, found.max_nodes, found.nproc_per_node) == (2, 4, 2)
    assert found.rdzv_configs == {"is_host": "0", "join_timeout": "600", "last_call_timeout": "60", "timeout": 900}
    assert found.rdzv_backend == rendezvous.BACKEND and rest[-1] == str(tmp_path / "job.json")


def test_places_are_taken_once_and_those_of_the_dead_are_free(tmp_path: Path) -> None:
    place = tmp_path / "taken-1"
    assert node_agent.claim(place) and not node_agent.claim(place)
    os.utime(place, (time.time() - 60, time.time() - 60))
    assert node_agent.claim(place) and not node_agent.claim(place)


def numbered(rank: int) -> None:
    """As torchrun numbers two machines of two, when the one that has the run came second."""
    from torch import distributed

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    if rank == 1:
        os.environ[KEY] = "00"
    store = distributed.distributed_c10d._get_default_store()
    assert process_rank(store) == 1 - rank


def test_the_machine_that_has_the_run_has_rank_0(tmp_path: Path) -> None:
    run_world(2, numbered, tmp_path)


@contextmanager
def second_machine(folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer.distributed.elastic.node_agent", str(folder)], stdout=out, stderr=out
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_machines_train_as_one_process(tmp_path: Path) -> None:
    config = toy_midtrain(
        steps=2, batch_tokens=300, source_share=0.0, parallel=TWO.model_copy(update={"precision": "float32"}),
        checkpoint=CheckpointConfig(every_steps=2), optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=0),
    )  # fmt: skip
    sink, root = MemorySink(), tmp_path / "checkpoints"
    rendezvous = RendezvousConfig(f"127.0.0.1:{free_port()}", tmp_path / "ranks")
    with second_machine(rendezvous.folder, tmp_path / "log") as other:
        result = run_stage_on_ranks(
            policy_dir=BASE_POLICY, config=config, seed=0, sink=sink, checkpoints=root, rendezvous=rendezvous
        )
        assert result == StageResult("completed", 2, root / "step-000002")
        assert other.poll() is None, (tmp_path / "log").read_text()
    assert list(rendezvous.folder.iterdir()) == []
    alone = MemorySink()
    run_midtrain(
        policy_dir=BASE_POLICY, config=config.model_copy(update={"parallel": ParallelConfig()}), seed=0, sink=alone,
        checkpoints=CheckpointStore(tmp_path / "one", keep=1),
    )  # fmt: skip
    for step in (1, 2):
        for name in ("loss/train", "loss/heldout", "optim/grad_norm", "tokens/trained"):
            if name in alone.values[step]:
                assert sink.values[step][name] == pytest.approx(alone.values[step][name], rel=2e-3), (name, step)
