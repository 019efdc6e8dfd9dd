"""Trajectories and accepted groups with chosen outcomes, stored through the services."""

from __future__ import annotations

from composer_web.core.artifacts import artifacts
from composer_web.core.queue import leases
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs.models import Run
from composer_web.runs.training import claims
from composer_web.runs.training.trainer_process import train
from composer_web.runs.training.wakes import Wakes
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.types import StopReason
from trainer.config import RLConfig
from trainer.rollouts.group import build_train_group
from trainer.toy.preset import toy_rl
from trainer.types import RewardPart, Segment, Trajectory

SMALL = toy_rl(
    steps=2,
    groups_per_step=2,
    group_size=2,
    max_off_policy_steps=1,
    max_in_flight_groups=4,
    eval_suite=None,
    eval_tasks=2,
    eval_samples=2,
)


def trajectory(group: Group, sample: int, *, passed: bool | None) -> Trajectory:
    """A short recorded rollout; `passed` None is an infrastructure failure."""
    verdict = Verdict.INFRA_ERROR if passed is None else Verdict.PASSED if passed else Verdict.FAILED
    reward = None if passed is None else float(passed)
    return Trajectory(
        task_id=group.task_version.task.slug,
        bundle_hash=group.task_version.bundle_hash,
        sample=sample,
        messages=({"role": "user", "content": "fix it"},),
        tool_schema_hash="0" * 8,
        turns=(),
        segments=(Segment(tokens=[1, 2, 3], logprobs=[0.0, -0.5, -0.25], loss_mask=[0, 1, 1], versions=[-1, 0, 0]),),
        stop_reason=StopReason.INFRA_ERROR if passed is None else StopReason.FINISHED,
        report=Report(verdict=verdict, cause="" if passed else "1 of 2 cases failed"),
        reward_parts=() if reward is None else (RewardPart(name="tests", value=reward),),
        reward=reward,
        seconds={"total": 1.0},
    )


def claim(group: Group, owner: str = "worker-1", seconds: float = 60.0) -> rollouts.Claim:
    claimed = rollouts.claim(group_id=group.pk, owner=owner, seconds=seconds)
    assert claimed is not None
    return claimed


def take_run(run: Run, owner: str = "train@test/t") -> leases.Held | None:
    """What a train worker does with the message `train.run`."""
    return claims.claim(run_id=run.pk, owner=owner)


def train_here(run: Run) -> Run:
    """Claim the run, and do in this process what its trainer process does."""
    held = take_run(run)
    assert held is not None
    train(run_id=run.pk, owner=held.owner, token=held.token, wakes=Wakes())
    leases.release(held)
    run.refresh_from_db()
    return run


def finish(group: Group, held: leases.Held, passes: list[bool], *, oldest: int | None = None) -> bool:
    """Store trajectories with these outcomes and accept the group; `oldest` is the version of its oldest token."""
    graded = []
    for sample, passed in enumerate(passes):
        key = f"groups/{group.pk}/{held.token}/{sample}.json.zst"
        artifacts().put_model(key, trajectory(group, sample, passed=passed))
        graded.append(rollouts.Graded(trajectory(group, sample, passed=passed), key))
    stage = group.run.configuration.stage if group.run else toy_rl()
    assert isinstance(stage, RLConfig)
    train = build_train_group(
        [g.trajectory for g in graded],
        group_id=str(group.pk),
        prompt_index=group.prompt_index,
        config=stage,
        dispatched_version=group.dispatched_version,
    )
    train_key = f"groups/{group.pk}/{held.token}/train.json.zst"
    artifacts().put_model(train_key, train)
    return rollouts.accept(
        group=group,
        held=held,
        graded=graded,
        train_key=train_key,
        oldest_version=train.oldest_version if oldest is None else oldest,
        infra_errors=(),
    )
