"""One rank of a run: `python -m trainer.parallel.worker JOB`, started by torchrun.

A rank that dies takes the others with it; torchrun starts all of them again, and they go on from the last checkpoint. So
it does when a machine comes or is lost: then with as many ranks as there are.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from torch import distributed

from trainer.config import ParallelConfig, RLConfig, SFTConfig
from trainer.learning.step import NonFiniteGradients
from trainer.parallel.channel import Job, Remote
from trainer.parallel.load import load
from trainer.parallel.mesh import Meshes, is_first, join
from trainer.parallel.parent import end_with_parent
from trainer.parallel.stage import OfFirst, ShardedRLStage
from trainer.parallel.trainee import ShardedTrainee
from trainer.policy import PolicyUnreadable
from trainer.replay.routers import RouterUnknown
from trainer.replay.wire import ReplayRefused
from trainer.stages.base import StageError, StageResult
from trainer.stages.checkpoint import CheckpointStore
from trainer.stages.data import read_episodes
from trainer.stages.midtrain import run_midtrain
from trainer.stages.rl import run_rl
from trainer.stages.sft import run_sft
from trainer.weights import WeightError, WeightStore

REFUSALS = (StageError, NonFiniteGradients, PolicyUnreadable, WeightError, RouterUnknown, ReplayRefused)
"""Ends that another start would come to again."""
GRACE_SECONDS = 3.0
"""How long a rank that failed beside other machines is still there. Where a machine joins, agents stop their ranks one after
the other; the ranks of the later ones fail, and their agents, which look once a second, would take that for a failure."""


def main(job_file: str) -> None:
    job = Job.model_validate_json(Path(job_file).read_text(encoding="utf-8"))
    remote = Remote(job.socket) if is_first() else None
    try:
        _run(job, remote)
    except REFUSALS as error:
        if remote is None:
            raise
        remote.call("ended", {"error": str(error)})
    except Exception:
        if job.stage.parallel.machines > 1:
            time.sleep(GRACE_SECONDS)
        raise
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _run(job: Job, remote: Remote | None) -> None:
    meshes = join(job.stage.parallel)
    if remote and job.stage.parallel.machines > 1:
        _tell(job.stage.parallel, meshes.world, remote)
    result = _stage(job, meshes, remote)
    if remote:
        checkpoint = str(result.checkpoint) if result.checkpoint else None
        remote.call("ended", {"outcome": result.outcome, "step": result.step, "checkpoint": checkpoint})


def _tell(config: ParallelConfig, ranks: int, remote: Remote) -> None:
    machines = ranks // config.ranks_each
    if machines == config.machines:
        remote.event("info", f"trains on all {machines} machines: {ranks} ranks")
    else:
        remote.event(
            "warning",
            f"trains on {machines} of {config.machines} machines: {ranks} of {config.ranks} ranks; others join when "
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
            store=WeightStore(job.store, dtype=config.checkpoint.published_dtype),
            checkpoints=checkpoints,
            keep_streams=remote.keep_streams if remote else None,
            stage_of=partial(ShardedRLStage, meshes),
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
        trainee_of=trainee_of,
        load=load,
    )


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1])
