"""One rank of a run: `python -m trainer.distributed.worker JOB`, started by torchrun.

A rank that dies takes the others with it; torchrun restarts all of them, and they resume from the last checkpoint. The
same happens when a node joins or is lost, with the number of ranks that are then available.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from torch import distributed

from trainer.checkpoint.store import CheckpointStore
from trainer.config import ParallelConfig, RLConfig, SFTConfig
from trainer.distributed.elastic.parent import end_with_parent, hold_ranks_lock
from trainer.distributed.elastic.rpc import Job, Remote
from trainer.distributed.load import load
from trainer.distributed.parallel_dims import Meshes, is_first, join
from trainer.distributed.rl import OfFirst, ShardedRL
from trainer.distributed.supervised import ShardedTrainee
from trainer.errors import StageError
from trainer.learning.step import NonFiniteGradients
from trainer.midtrain.stage import run_midtrain
from trainer.policy import PolicyUnreadable, published_dtype
from trainer.rl.stage import run_rl
from trainer.routed_experts import ReplayRefused
from trainer.router_replay.families import RouterUnknown
from trainer.sft.expert_episodes import read_episodes
from trainer.sft.stage import run_sft
from trainer.stages.base import StageResult
from trainer.weights import WeightError, WeightStore

REFUSALS = (StageError, NonFiniteGradients, PolicyUnreadable, WeightError, RouterUnknown, ReplayRefused)
"""Errors that a restart would reproduce."""
GRACE_SECONDS = 3.0
"""Seconds for which a failed rank stays alive beside other nodes. When a node joins, agents stop their ranks one after
the other. Ranks of later agents fail meanwhile, and those agents, which poll once a second, would take that for a
failure.
"""


def main(job_file: str) -> None:
    job = Job.model_validate_json(Path(job_file).read_text(encoding="utf-8"))
    remote = Remote(job.socket) if is_first() else None
    try:
        _run(job, remote)
    except REFUSALS as error:
        if remote is None:
            raise
        remote.call("ended", {"error": str(error), "errno": _errno(error)})
    except Exception:
        if job.stage.parallel.max_nodes > 1:
            time.sleep(GRACE_SECONDS)
        raise
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _errno(error: BaseException | None) -> int | None:
    """Number of the system error behind `error`."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def _run(job: Job, remote: Remote | None) -> None:
    meshes = join(job.stage.parallel)
    if remote and job.stage.parallel.max_nodes > 1:
        _tell(job.stage.parallel, meshes.world, remote)
    result = _stage(job, meshes, remote)
    if remote:
        checkpoint = str(result.checkpoint) if result.checkpoint else None
        remote.call("ended", {"outcome": result.outcome, "step": result.step, "checkpoint": checkpoint})


def _tell(config: ParallelConfig, ranks: int, remote: Remote) -> None:
    machines = ranks // config.ranks_per_node
    if machines == config.max_nodes:
        remote.event("info", f"trains on all {machines} machines: {ranks} ranks")
    else:
        remote.event(
            "warning",
            f"trains on {machines} of {config.max_nodes} machines: {ranks} of {config.world_size} ranks; others join when "
            "`manage.py ranks` waits there",
        )


def _stage(job: Job, meshes: Meshes, remote: Remote | None) -> StageResult:
    config = job.stage
    outside = OfFirst(meshes, remote, remote)
    checkpoints = CheckpointStore(job.checkpoints, keep=config.checkpoint.keep)
    if isinstance(config, RLConfig):
        return run_rl(
            policy_dir=job.policy_dir,
            config=config,
            seed=job.seed,
            source=outside,
            sink=outside,
            store=WeightStore(job.store, dtype=published_dtype(config.checkpoint, job.policy_dir)),
            checkpoints=checkpoints,
            keep_streams=remote.keep_streams if remote else None,
            backend_of=partial(ShardedRL, meshes),
        )
    trainee_of = partial(ShardedTrainee, meshes)
    if isinstance(config, SFTConfig):
        return run_sft(
            policy_dir=job.policy_dir,
            config=config,
            seed=job.seed,
            episodes=read_episodes(job.episodes) if job.episodes else [],
            dataset=job.dataset,
            corpora=job.corpora,
            codebase=job.codebase,
            sink=outside,
            checkpoints=checkpoints,
            trainee_of=trainee_of,
            load=load,
        )
    return run_midtrain(
        policy_dir=job.policy_dir,
        config=config,
        seed=job.seed,
        sink=outside,
        checkpoints=checkpoints,
        corpora=job.corpora,
        codebase=job.codebase,
        trainee_of=trainee_of,
        load=load,
    )


if __name__ == "__main__":
    end_with_parent()
    hold_ranks_lock()
    main(sys.argv[1])
