"""Killed outright, each process of the product is replaced and the run ends with nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from composer_web.env import REPOSITORY
from composer_web.evals.models import Evaluation
from composer_web.policies.services import import_base
from composer_web.rollouts.models import Group
from composer_web.rollouts.selectors import verdict_counts
from composer_web.runs import services
from composer_web.runs.charts.series import buckets
from composer_web.runs.models import RUN_FINAL, Run, TrainBatch
from composer_web.tasks.services import build_procedural
from tests.web.helpers import eventually
from tests.web.product import Product
from trainer.config import CheckpointConfig, OptimizerConfig, RunConfig
from trainer.toy.preset import toy_rl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000), pytest.mark.django_db(transaction=True)]

STEPS = 8
STAGE = toy_rl(
    steps=STEPS,
    groups_per_step=2,
    group_size=2,
    max_in_flight_groups=4,
    eval_tasks=4,
    eval_samples=2,
    eval_every=4,
    checkpoint=CheckpointConfig(every_steps=3),
    optimizer=OptimizerConfig(warmup_steps=1, learning_rate=3e-4),
)


@pytest.fixture
def product(tmp_path: Path, free_port: int) -> Iterator[Product]:
    made = Product(tmp_path, free_port)
    for name in made.commands:
        made.start(name)
    yield made
    made.stop()


def test_every_process_is_killed_once_and_nothing_is_lost(product: Product) -> None:
    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    build_procedural(n_train=24, n_held_out=4)
    run = services.create_run(config=RunConfig(name="survivor", stage=STAGE))
    services.start_run(run=run)

    def reach(condition: Callable[[Run], bool], what: str) -> None:
        def holds() -> bool:
            run.refresh_from_db()
            assert run.state != "failed", run.failure
            return condition(run)

        eventually(holds, seconds=900, what=what)

    reach(lambda r: r.groups.filter(state="running").exists(), "a group in progress")
    product.kill("rollout")
    reach(lambda r: r.step >= 2, "step 2")
    product.kill("inference")
    reach(lambda r: r.step >= 5, "step 5, past the checkpoint of step 3")
    before = dict(TrainBatch.objects.filter(run=run).values_list("step", "group_ids"))
    product.kill("train")
    reach(lambda r: r.recoveries == 1, "another worker")
    product.kill("control")
    reach(lambda r: r.state in RUN_FINAL, "the end")
    eventually(
        lambda: not Evaluation.objects.filter(run=run, state__in=["pending", "running"]).exists(),
        seconds=900,
        what="evaluations",
    )

    assert run.state == "finished" and run.step == STEPS
    counts = verdict_counts(run=run)
    assert counts["open"] == 0
    assert counts["dispatched"] == counts["passed"] + counts["failed"] + counts["infra_error"]
    after = dict(TrainBatch.objects.filter(run=run).values_list("step", "group_ids"))
    assert after | before == after and sorted(after) == list(range(1, STEPS + 1))
    trained = [pk for ids in after.values() for pk in ids]
    assert len(trained) == len(set(trained)) == STEPS * STAGE.groups_per_step
    assert set(Group.objects.filter(run=run, state="consumed").values_list("pk", flat=True)) == set(trained)
    assert [b.first for b in buckets(run, ["reward/mean"])["reward/mean"]] == list(range(1, STEPS + 1))
    assert run.policy_out is not None and run.policy_out.checkpoints.filter(kind="final", version=STEPS).exists()
    phases = Evaluation.objects.filter(run=run, state="finished").values_list("phase", flat=True)
    assert sorted(phases) == ["after", "before", "during"]
