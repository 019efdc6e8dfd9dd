"""Runs the configured stage in this process, with the control plane as its source and sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, Project
from composer_web.core import inference
from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.runs.models import Run
from composer_web.runs.paths import checkpoints_folder, ranks_folder, ranks_lock, served_weights, weights_folder
from composer_web.runs.train_queues import worker_queue
from composer_web.runs.training.trainer_bridge import DatabaseGroupSource, DatabaseSink, RunControl
from trainer.config import MidtrainConfig, RLConfig, SFTConfig, Stage
from trainer.errors import StageError
from trainer.inference.contract import InferenceError, InferenceRefused
from trainer.stages.base import StageResult

if TYPE_CHECKING:
    from trainer.checkpoint.store import CheckpointStore
    from trainer.sft.expert_episodes import ExpertEpisode


def run_stage(*, run: Run, control: RunControl, sink: DatabaseSink, policy_dir: Path) -> bool:
    """Run to the end or until asked to stop; True if stopped. Raises StageError."""
    from trainer.policy import PolicyUnreadable
    from trainer.weights import WeightError

    try:
        result = _run(run, control, sink, policy_dir)
    except (PolicyUnreadable, WeightError) as error:
        raise StageError(str(error)) from error
    return result.outcome == "stopped"


def _run(run: Run, control: RunControl, sink: DatabaseSink, policy_dir: Path) -> StageResult:
    from trainer.checkpoint.store import CheckpointStore

    stage = run.configuration.stage
    checkpoints = CheckpointStore(checkpoints_folder(run), keep=stage.checkpoint.keep)
    if isinstance(stage, MidtrainConfig):
        from trainer.midtrain.stage import run_midtrain

        sink.phase(f"training on the corpus {stage.corpus}" if stage.corpus else "training on source and drills")
        data = text_folders(run, stage)
        if stage.parallel.world_size > 1:
            return _on_ranks(run, stage, sink, policy_dir, checkpoints, **data)
        return run_midtrain(
            policy_dir=policy_dir, config=stage, seed=run.seed, sink=sink, checkpoints=checkpoints, **data
        )
    if isinstance(stage, SFTConfig):
        return _sft(run, stage, sink, policy_dir, checkpoints)
    assert isinstance(stage, RLConfig)
    from composer_web.runs.training.sessions import SessionGroupSource
    from trainer.policy import published_dtype
    from trainer.rl.stage import run_rl
    from trainer.weights import WeightStore

    _ask_engine(run, sink)
    sink.phase("reinforcement learning")
    source = (
        SessionGroupSource(control, sink)
        if stage.sessions.channel
        else DatabaseGroupSource(control, waiting=sink.engines.waiting)
    )
    if stage.parallel.world_size > 1:
        return _on_ranks(
            run,
            stage,
            sink,
            policy_dir,
            checkpoints,
            source=source,
            store=weights_folder(run),
            keep_streams=sink.streams,
        )
    return run_rl(
        policy_dir=policy_dir,
        config=stage,
        seed=run.seed,
        source=source,
        sink=sink,
        store=WeightStore(
            weights_folder(run),
            dtype=published_dtype(stage.checkpoint, policy_dir),
            anchor_every=stage.checkpoint.anchor_every,
            mode=stage.checkpoint.codec,
        ),
        checkpoints=checkpoints,
        keep_streams=sink.streams,
    )


def _sft(run: Run, stage: SFTConfig, sink: DatabaseSink, policy_dir: Path, checkpoints: CheckpointStore) -> StageResult:
    from trainer.sft.stage import run_sft

    data = text_folders(run, stage)
    if stage.dataset:
        data["dataset"] = dataset_folder(run, stage)
        sink.phase(f"training on the dataset {stage.dataset}")
    else:
        sink.phase(f"recording {stage.episodes} expert episodes in sandboxes")
        data["episodes"] = _episodes(stage, run.seed)
        sink.phase("training on expert episodes")
    if stage.parallel.world_size > 1:
        return _on_ranks(run, stage, sink, policy_dir, checkpoints, **data)
    return run_sft(policy_dir=policy_dir, config=stage, seed=run.seed, sink=sink, checkpoints=checkpoints, **data)


def text_folders(run: Run, stage: MidtrainConfig | SFTConfig) -> dict[str, Any]:
    """Where corpora lie, and the codebase that the stage names, as the run's project has it. Raises StageError."""
    from composer_web.datasets import codebases, corpora

    found: dict[str, Any] = {"corpora": corpora.root()}
    if stage.codebase:
        project = run.project_id or DEFAULT_PROJECT
        libraries = Project.objects.filter(library=True, archived_at=None).values_list("pk", flat=True)
        try:
            with acting(Access(run.created_by_id or 0, "viewer", project, project, tuple(libraries))):
                found["codebase"] = codebases.of_run(stage.codebase).path.resolve()
        except UserError as error:
            raise StageError(str(error)) from error
    return found


def dataset_folder(run: Run, stage: SFTConfig) -> Path:
    """Folder of the dataset in the run's project. Raises StageError."""
    from composer_web.datasets.selectors import ready
    from composer_web.datasets.services import folder_of

    try:
        return folder_of(ready(stage.dataset, project=run.project_id)[0])
    except UserError as error:
        raise StageError(str(error)) from error


def _on_ranks(
    run: Run, stage: Stage, sink: DatabaseSink, policy_dir: Path, checkpoints: CheckpointStore, **of_stage: Any
) -> StageResult:
    from trainer.distributed.elastic.launch import run_stage_on_ranks
    from trainer.distributed.elastic.nodes import RendezvousConfig

    parallel, training = stage.parallel, run.phase
    if parallel.max_nodes > 1:
        few = f"{parallel.fewest_nodes - 1} to " if parallel.fewest_nodes < parallel.max_nodes else ""
        sink.phase(f"waiting for {few}{parallel.max_nodes - 1} more machines")
    return run_stage_on_ranks(
        policy_dir=policy_dir,
        config=stage,
        seed=run.seed,
        sink=sink,
        checkpoints=checkpoints.root,
        rendezvous=RendezvousConfig(env().trainer_endpoint, ranks_folder()),
        lock=ranks_lock(worker_queue(sink.control.held.owner)),
        started=lambda: sink.phase(training),
        **of_stage,
    )


def _ask_engine(run: Run, sink: DatabaseSink) -> None:
    """Wait until the policy is served before using the first prompt. Raises StageError if the engine cannot serve
    it."""
    try:
        inference.deploy(served_weights(run))
    except InferenceRefused as error:
        raise StageError(f"the inference engine refuses this policy: {error}") from error
    except InferenceError as error:
        sink.event("warning", f"rollouts wait for the inference engine: {error}")


def _episodes(config: SFTConfig, seed: int) -> list[ExpertEpisode]:
    """Expert episodes from the cache, or recorded in real sandboxes first. Raises StageError."""
    import asyncio

    from sandbox.backends.base import SandboxError
    from sandbox.backends.choice import default_backend
    from sandbox.tasks.environments import EnvironmentStore
    from sandbox.tasks.procedural.expert import Habits
    from trainer.sft.recording import Recording, expert_episodes

    async def record() -> list[ExpertEpisode]:
        backend = default_backend()
        try:
            return list(
                await expert_episodes(
                    Recording(
                        config.episodes,
                        seed=seed,
                        habits=Habits(right=config.expert_accuracy, tamper=config.tamper_share),
                    ),
                    cache=env().data / "expert",
                    backend=backend,
                    environments=EnvironmentStore(env().data / "environments"),
                )
            )
        finally:
            await backend.close()

    try:
        return asyncio.run(record())
    except (SandboxError, TimeoutError, ValueError) as error:
        raise StageError(f"the expert episodes could not be recorded: {error or type(error).__name__}") from error
