"""A whole study of the toy: a real train worker takes nine runs one after the other, each from what the one before trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from composer_web.env import env
from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.runs.models import RUN_FINAL, Run
from composer_web.studies import results, services
from composer_web.studies.schemas import StudyIn
from composer_web.tasks.models import Suite
from tests.trainer.stages.memory import small_config
from tests.web.forked import ForkedProduct
from tests.web.helpers import eventually
from tests.web.played import play_dispatched
from trainer.toy.preset import toy_midtrain, toy_sft

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
SECONDS = 600


@pytest.fixture
def product(forked: ForkedProduct) -> Iterator[ForkedProduct]:
    with redis.Redis.from_url(env().redis_url) as client:
        client.flushdb()
    yield forked
    forked.end()


def test_three_levels_are_trained_measured_and_ranked(
    product: ForkedProduct, base: Policy, make_suite: Callable[..., Suite]
) -> None:
    make_suite()
    ours = env().data / "corpora" / "ours"
    ours.mkdir(parents=True, exist_ok=True)
    (ours / "x.py").write_text("def total(items):\n    return sum(items)\n" * 20)
    study = services.create_study(
        wanted=StudyIn(
            name="whole",
            policy="base",
            codebase=ours.name,
            midtrain=toy_midtrain(steps=1, batch_tokens=256, held_out_tokens=256),
            sft=toy_sft(steps=1, batch_tokens=256, episodes=10, held_out_tokens=256),
            rl=small_config(steps=1, eval_suite=None),
        )
    )
    runs = Run.objects.filter(place_in_study__study=study)
    product.start("train")
    killed = False

    def ended() -> bool:
        nonlocal killed
        for run in runs.filter(kind="rl", state="running"):
            rollouts.pump(run_id=run.pk)
            play_dispatched(run)
        if not killed and runs.filter(kind="sft", state="running").exists():
            product.kill("train")
            killed = True
        failures = [run.failure for run in runs.filter(state="failed")]
        assert not failures, failures
        return not runs.exclude(state__in=RUN_FINAL).exists()

    eventually(ended, seconds=SECONDS, what="the end of the study")
    assert killed
    found = results.results(study)
    assert [chain.level for chain in found.points] == ["S", "M", "L"] and not found.missing
    assert [chain.midtrain.steps_total for chain in found.chains] == [1, 3, 9]
    for chain in found.chains:
        assert chain.codebase_loss is not None and chain.sft_loss is not None and chain.sft_loss > 0
        assert chain.sft.policy_in_version == chain.midtrain.steps_total and chain.rl.policy_in_version == 1
    assert len({chain.sft_loss for chain in found.chains}) == 3, "each began with other weights"
    assert [chain.reward for chain in found.chains] == [0.5] * 3, "half of what the test plays passes"
    assert found.correlation is None, "of equal rewards none is defined"
