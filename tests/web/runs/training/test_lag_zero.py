"""At lag 0 the product's own source of groups gives the synchronous loop: batches, losses and weights, also over a resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_web.core.queue import leases
from composer_web.policies.models import Policy
from composer_web.rollouts.models import Group
from composer_web.runs import services
from composer_web.runs.models import Metric, Run, TrainBatch
from composer_web.runs.training.trainer_bridge import DatabaseGroupSource, DatabaseSink, RunControl
from composer_web.tasks.models import Suite
from tests.trainer.orchestrator.groups import group_of
from tests.trainer.stages.memory import BASE_POLICY, small_config
from tests.web.played import play
from trainer.checkpoint.store import CheckpointStore
from trainer.config import RunConfig
from trainer.rl.learner import build_learner
from trainer.rl.rl_sync import SyncRun, SyncStep, build_reference, learn, policies, publish
from trainer.rl.stage import run_rl
from trainer.types import TrainGroup
from trainer.weights import WeightStore

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]  # a thread of its own tells of versions
CONFIG = small_config(steps=4, max_off_policy_steps=0, eval_suite=None)
NUMBERS = ("optim/loss", "optim/grad_norm", "policy/entropy", "mismatch/k3_mean", "reward/mean", "staleness/max")


@pytest.fixture
def control(base: Policy, make_suite: Callable[..., Suite]) -> RunControl:
    make_suite()
    run = services.create_run(config=RunConfig(name="lag 0", stage=CONFIG))
    services.start_run(run=run)
    services.mark_running(run=run, owner="trainer@test")
    held = leases.take(f"run:{run.pk}", owner="trainer", seconds=600)
    assert held is not None
    return RunControl(run, held)


class Played(DatabaseGroupSource):
    """What was dispatched is played by workers that end in the opposite order, and accepted through the services."""

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        for group in Group.objects.filter(run=self.control.run, state="dispatched").order_by("-prompt_index"):
            play(group)
        return super().next_batch(step, timeout=timeout)


class Until(DatabaseSink):
    """The run is stopped after a step."""

    last = CONFIG.steps

    def should_stop(self) -> bool:
        return (self.run.step or 0) >= self.last


def product(control: RunControl, root: Path, *, last: int = CONFIG.steps) -> WeightStore:
    store = WeightStore(root / "weights", dtype="float32")
    sink = Until(control)
    sink.last = last
    run_rl(
        policy_dir=BASE_POLICY,
        config=CONFIG,
        seed=0,
        source=Played(control),
        sink=sink,
        store=store,
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
    )
    return store


def synchronous(root: Path) -> tuple[list[SyncStep], WeightStore]:
    store = WeightStore(root, dtype="float32")
    policy = policies.load(BASE_POLICY)
    reference = build_reference(CONFIG, BASE_POLICY, store)
    learner = build_learner(policy, CONFIG, seed=0, reference=reference)
    steps: list[SyncStep] = []

    async def nothing(version: int) -> None:
        pass

    run = SyncRun(CONFIG, 0, policy, learner, reference, store, None, nothing)  # type: ignore[arg-type]

    async def train() -> None:
        await publish(run)
        for first in range(0, CONFIG.steps * CONFIG.groups_per_step, CONFIG.groups_per_step):
            prompts = range(first, first + CONFIG.groups_per_step)
            steps.append(await learn(run, [group_of(prompt, run.version) for prompt in prompts]))

    asyncio.run(train())
    return steps, store


def recorded(run: Run) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for step, name, value in Metric.objects.filter(run=run, key__name__in=NUMBERS).values_list(
        "step", "key__name", "value"
    ):
        found.setdefault(step, {})[name] = value
    return found


@pytest.mark.parametrize("cut", [None, 3], ids=["whole", "resumed"])
def test_batches_losses_and_weights_are_those_of_the_synchronous_loop(
    control: RunControl, tmp_path: Path, cut: int | None
) -> None:
    if cut:
        product(control, tmp_path / "web", last=cut)
        control.run.refresh_from_db()
        assert control.run.step == cut
    ours = product(control, tmp_path / "web")
    steps, theirs = synchronous(tmp_path / "sync")
    batches = TrainBatch.objects.filter(run=control.run).order_by("step").values_list("group_ids", flat=True)
    prompts = dict(Group.objects.filter(run=control.run).values_list("pk", "prompt_index"))
    assert [[prompts[pk] for pk in batch] for batch in batches] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    shown = recorded(control.run)
    for step in steps:
        assert {name: shown[step.step][name] for name in NUMBERS} == {name: step.metrics[name] for name in NUMBERS}
    for version in range(CONFIG.steps + 1):
        assert ours.manifest(version).digest == theirs.manifest(version).digest
