"""The asynchronous RL stage on the trainer side: batch in, step, publish, checkpoint, metrics.

Rollout workers run elsewhere and feed accepted groups through a `GroupSource`. This loop waits only for a full batch,
never for one particular rollout. Policy version v is the weights after optimiser step v; version 0 is the starting
policy. A step copies its version; a thread encodes, writes, announces and cleans up while the loop waits for and trains
the next batch. A resumed stage loads its last checkpoint and replays the recorded batches from there, so a crash costs
only time: on a CPU the replayed steps give the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer.checkpoint.store import CheckpointState, CheckpointStore
from trainer.config import RLConfig
from trainer.errors import BatchTimeout, StageError
from trainer.learning.metrics import batch_metrics
from trainer.learning.step import NonFiniteGradients
from trainer.learning.token_export import TrainedGroup
from trainer.policy.round_trip import TemplateNotExact, check_template
from trainer.rl.backend import STAGE, RLBackend, SingleProcess
from trainer.stages.base import GroupSource, StageResult, StageSink
from trainer.stages.draft_heads import check_heads, of_rollouts, with_head
from trainer.types import TrainGroup
from trainer.weights import Manifest, WeightStore

ON_POLICY_MISMATCH = 0.05
"""k3 of on-policy tokens beyond any difference of number formats (bfloat16 against float32 stays near 1e-3)."""

NO_EXPERTS = (
    "sampling.enable_router_replay is on and the engine said of no token which experts it chose, so the trainer "
    "routes by itself and "
    "learns from probabilities that the sampler did not have; start vLLM with --enable-return-routed-experts (compose: "
    "VLLM_ROUTED_EXPERTS=true), or set sampling.enable_router_replay to false"
)


class PromptRepeated(StageError):
    """A prompt occurred twice. Each prompt is trained on once."""


class VersionsImpossible(StageError):
    """A group names a policy version that this run has not produced yet."""


class RLStage:
    """State of an RL run between steps. `step` is the last finished step and the current policy version."""

    def __init__(self, backend: RLBackend, config: RLConfig, *, seed: int) -> None:
        """Go on where the backend's checkpoint ends. Raises StageError."""
        self.backend = backend
        self.config = config
        self.seed = seed
        self.policy = backend.policy
        self.reference = backend.reference
        self.learner = backend.learner
        check_heads(self.policy.model, config.mtp)
        self.step = 0
        self.consumed: list[int] = []
        self.skipped: list[int] = []
        self.checkpoint: Path | None = None
        self.told: set[str] = set()
        """Faults that have been reported; they recur at every step, so one event each suffices."""
        if backend.found:
            self.step = backend.found.state.step
            self.consumed = list(backend.found.state.consumed_prompts)
            self.skipped = list(backend.found.state.skipped_steps)
            self.checkpoint = backend.found.path
        self.began = self.step

    def train(self, groups: Sequence[TrainGroup]) -> dict[str, float]:
        """Take the next optimiser step over `groups`. Raises PromptRepeated, VersionsImpossible, NonFiniteGradients."""
        prompts = [group.prompt_index for group in groups]
        repeated = set(self.consumed).intersection(prompts) or {p for p in prompts if prompts.count(p) > 1}
        if repeated:
            raise PromptRepeated(
                f"step {self.step + 1}: prompt {min(repeated)} was trained on before; check the batch assignment"
            )
        for group in groups:
            if group.newest_version > self.step:
                raise VersionsImpossible(
                    f"step {self.step + 1}: group {group.group_id} has tokens of version {group.newest_version} and the "
                    f"newest is {self.step}; look at what the inference deployment serves"
                )
        if self.reference is not None:
            if self.reference.wanted(self.step) != self.reference.version:
                self.backend.wait()  # it may become the version that is being written; what it leaves may be collected
            self.reference.follow(self.step)
        values = batch_metrics(groups, trained_version=self.step)
        values |= self.backend.learn_from_hints(groups)
        try:
            values |= self.learner.train(groups, step=self.step + 1) | {"optim/skipped": 0.0}
        except NonFiniteGradients:
            # The learner has not touched the weights. A replay comes to the same end, so that a resume is exact.
            if self._skipped_in_a_row() >= self.config.orchestrator.max_non_finite_steps:
                raise
            self.skipped.append(self.step + 1)
            values["optim/skipped"] = 1.0
        self.step += 1
        self.consumed += prompts
        return values

    def _skipped_in_a_row(self) -> int:
        """Number of consecutive skipped steps before the next one."""
        last = self.step
        while last in self.skipped:
            last -= 1
        return self.step - last

    def publish(self, sink: StageSink) -> None:
        """Publish the current version, perhaps beside the next step.

        Waits for the previous publication and raises its error: WeightError, or what the sink raises.
        """

        def published(manifest: Manifest, seconds: float | None) -> None:
            values: dict[str, float] = {}
            if manifest.version != self.began:  # no step of this process made the version that it started with
                values = {"weights/bytes": float(manifest.payload_bytes), "weights/changed": manifest.density}
                values |= {} if seconds is None else {"time/publish_background": seconds}
            sink.version_published(manifest.version, manifest.digest, values)

        self.backend.publish(self.step, sink, published)

    def teach_heads(self, source: GroupSource) -> dict[str, float]:
        """Train a draft head on the last rollouts, for the next checkpoint. Raises StageError."""
        rollouts = of_rollouts(source, self.step, timeout=self.config.batch_deadline)
        self.policy, found = with_head(self.policy, self.backend.teacher(), rollouts, self.config.mtp, seed=self.seed)
        return found

    def save(self, sink: StageSink, *, final: bool = False) -> Path:
        """Checkpoint the current step. Raises CheckpointError and the errors of `publish`."""
        state = CheckpointState(
            stage=STAGE,
            step=self.step,
            version=self.step,
            seed=self.seed,
            consumed_prompts=self.consumed,
            skipped_steps=self.skipped,
        )
        self.checkpoint = self.backend.save(self.policy, state, sink, final=final)
        return self.checkpoint


def run_rl(
    *,
    policy_dir: Path,
    config: RLConfig,
    seed: int,
    source: GroupSource,
    sink: StageSink,
    store: WeightStore,
    checkpoints: CheckpointStore,
    keep_streams: Callable[[Sequence[TrainedGroup]], None] | None = None,
    backend_of: Callable[..., RLBackend] = SingleProcess,
) -> StageResult:
    """Run the stage to its end, or until `sink.should_stop()`. Raises StageError, NonFiniteGradients.

    `keep_streams` receives each step's per-token streams. `backend_of` constructs the backend; distributed training passes
    its own (`trainer/distributed/rl.py`).
    """
    backend = backend_of(policy_dir=policy_dir, config=config, seed=seed, store=store, checkpoints=checkpoints)
    stage = RLStage(backend, config, seed=seed)
    try:
        check_template(stage.policy.renderer)
    except TemplateNotExact as error:
        raise StageError(f"policy {stage.policy.dir.name!r} cannot play episodes: {error}") from error
    if stage.step:
        sink.event("info", f"resumed from the checkpoint of step {stage.step}")
    try:
        # Version 0, or the checkpoint's version again: the store then has the base of the next delta.
        stage.publish(sink)
        stage.backend.wait()  # no batch comes before it
        sink.progress(stage.step, config.steps)
        while stage.step < config.steps:
            if sink.should_stop():
                return StageResult("stopped", stage.step, stage.save(sink) if stage.step else None)
            _one_step(stage, source, sink, keep_streams)
            sink.progress(stage.step, config.steps)
    except BaseException:
        stage.backend.end()  # what it ended in came first, and is raised instead
        raise
    return StageResult("completed", stage.step, stage.checkpoint)


def _one_step(
    stage: RLStage,
    source: GroupSource,
    sink: StageSink,
    keep_streams: Callable[[Sequence[TrainedGroup]], None] | None,
) -> None:
    config = stage.config
    clock = _Clock()
    groups = _next_batch(stage, source, sink)
    clock.lap("time/wait_for_batch")
    stage.backend.check()
    try:
        values = stage.train(groups)
    except NonFiniteGradients as error:
        sink.event("error", str(error), {"groups": [group.group_id for group in groups]})
        raise
    clock.lap("time/train")
    if keep_streams is not None:
        keep_streams(stage.learner.streams(groups, step=stage.step))
    _report_faults(stage, groups, values, sink)
    if stage.backend.heads:  # before the version, which brings the head
        values |= stage.backend.heads.train((s.tokens for group in groups for s in group.samples), step=stage.step)
        clock.lap("time/heads")
    stage.publish(sink)
    clock.lap("time/publish")
    final = stage.step == config.steps
    if final and config.mtp.at_end:
        values |= stage.teach_heads(source)
        clock.lap("time/heads")
    due = final or stage.step % config.checkpoint.every_steps == 0
    if due or config.max_off_policy_steps == 0:  # without lag, the next batch is made by this version
        stage.backend.wait()
        clock.lap("time/publish")
    # Before the checkpoint: a trainer that resumes from it does not repeat this step, so its metrics must be kept by then.
    sink.metrics(stage.step, {**values, **clock.metrics(), **source.flow()})
    if due:
        stage.save(sink, final=final)
        clock.lap("time/checkpoint")
        sink.metrics(stage.step, clock.metrics())


def _report_faults(stage: RLStage, groups: list[TrainGroup], values: dict[str, float], sink: StageSink) -> None:
    """Report faults of a step that did not stop it."""
    names = [group.group_id for group in groups]
    if values["optim/skipped"]:
        sink.event(
            "error", f"step {stage.step}: gradients were not finite; the weights stay as they were", {"groups": names}
        )
    lasting = {
        "experts": NO_EXPERTS if values.get("routing/replayed") == 0.0 else "",
        "windows": _windows_open_full(groups, stage.config.harness.summary.trigger_tokens),
    }
    for fault, text in lasting.items():
        if text and fault not in stage.told:
            stage.told.add(fault)
            sink.event("error", f"step {stage.step}: {text}", {"groups": names})
    mismatch = values.get("mismatch/k3_mean", 0.0)
    if values["staleness/max"] == 0 and mismatch > ON_POLICY_MISMATCH:
        sink.event(
            "error",
            f"step {stage.step}: all tokens are said to be of version {stage.step - 1}, and the mismatch with its weights is "
            f"{mismatch:.3g}: the engine serves other weights than it says, or computes them otherwise",
            {"groups": names},
        )


def _windows_open_full(groups: Sequence[TrainGroup], trigger: int) -> str:
    """Message when every context window ended after one turn; else empty."""
    openings = [sample.loss_mask.index(1) for group in groups for sample in group.samples if 1 in sample.loss_mask]
    if not trigger or min(openings, default=0) < trigger:
        return ""
    return (
        f"harness.summary.trigger_tokens={trigger} is reached before the policy says anything, since the task and the tools' "
        f"descriptions take {min(openings)} tokens or more; raise it well above that, so that a window holds several turns"
    )


def _next_batch(stage: RLStage, source: GroupSource, sink: StageSink) -> list[TrainGroup]:
    step, config = stage.step + 1, stage.config
    try:
        groups = source.next_batch(step, timeout=config.batch_deadline)
    except BatchTimeout:
        sink.event(
            "error",
            f"step {step}: no full batch within {config.batch_deadline:g} s; are rollout workers and inference up?",
        )
        raise
    if len(groups) != config.groups_per_step:
        raise StageError(f"step {step}: the source gave {len(groups)} groups, {config.groups_per_step} are configured")
    return groups


class _Clock:
    """Wall seconds of a step, by phase."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Add the time since the last lap to `name`."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now

    def metrics(self) -> dict[str, float]:
        """Laps, total seconds so far, and the share in which the trainer waited."""
        total = time.perf_counter() - self._start
        return self.laps | {"time/step": total, "idle/trainer": self.laps["time/wait_for_batch"] / total}
