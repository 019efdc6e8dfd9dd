"""One rank of a run: `python -m trainer.parallel.worker JOB`, started by torchrun.

A rank that dies takes the others with it; torchrun starts all of them again, and they go on from the last checkpoint.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from torch import distributed

from trainer.learning.step import NonFiniteGradients
from trainer.parallel.channel import Job, Remote
from trainer.parallel.mesh import join
from trainer.parallel.stage import OfFirst, ShardedRLStage
from trainer.policy import PolicyUnreadable
from trainer.replay.routers import RouterUnknown
from trainer.stages.base import StageError
from trainer.stages.checkpoint import CheckpointStore
from trainer.stages.rl import run_rl
from trainer.weights import WeightError, WeightStore

REFUSALS = (StageError, NonFiniteGradients, PolicyUnreadable, WeightError, RouterUnknown)
"""Ends that another start would come to again."""


def main(job_file: str) -> None:
    job = Job.model_validate_json(Path(job_file).read_text(encoding="utf-8"))
    remote = Remote(job.socket) if os.environ["RANK"] == "0" else None
    try:
        _run(job, remote)
    except REFUSALS as error:
        if remote is None:
            raise
        remote.call("ended", {"error": str(error)})
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _run(job: Job, remote: Remote | None) -> None:
    config = job.stage
    meshes = join(config.parallel)
    outside = OfFirst(meshes, remote, remote)
    result = run_rl(
        policy_dir=job.policy_dir,
        config=config,
        seed=job.seed,
        source=outside,
        sink=outside,
        store=WeightStore(job.store, dtype=config.checkpoint.published_dtype),
        checkpoints=CheckpointStore(job.checkpoints, keep=config.checkpoint.keep),
        keep_streams=remote.keep_streams if remote else None,
        stage_of=partial(ShardedRLStage, meshes),
    )
    if remote:
        checkpoint = str(result.checkpoint) if result.checkpoint else None
        remote.call("ended", {"outcome": result.outcome, "step": result.step, "checkpoint": checkpoint})


if __name__ == "__main__":
    main(sys.argv[1])
