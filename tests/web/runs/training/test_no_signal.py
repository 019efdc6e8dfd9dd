"""A run in which every group has equal rewards has trained nothing, and says so: through what a train worker starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.runs.training import stages
from composer_web.runs.training.trainer_bridge import DatabaseGroupSource
from composer_web.tasks.models import Suite
from tests.trainer.stages.memory import small_config
from tests.web.making import train_here
from tests.web.played import play
from trainer.config import RunConfig
from trainer.types import TrainGroup

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]


@pytest.fixture(params=[False, True], ids=["no signal", "a signal in the last step"])
def ended(
    request: pytest.FixtureRequest,
    base: Policy,
    make_suite: Callable[..., Suite],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Run, bool]:
    class Played(DatabaseGroupSource):
        """Rollout workers that accept what is dispatched before a step."""

        def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
            rollouts.pump(run_id=self.control.run.pk)
            for group in Group.objects.filter(run=self.control.run, state="dispatched").order_by("prompt_index"):
                play(group, signal=request.param and step == 2)
            return super().next_batch(step, timeout=timeout)

    monkeypatch.setattr(stages, "DatabaseGroupSource", Played)
    make_suite()
    stage = small_config(steps=2, max_off_policy_steps=0, eval_suite=None)
    run = services.start_run(run=services.create_run(config=RunConfig(name="flat", stage=stage)))
    return train_here(run), request.param


def test_a_run_without_a_signal_ends_as_failed_with_its_cause(ended: tuple[Run, bool]) -> None:
    run, signal = ended
    assert run.step == 2, run.failure
    if signal:
        assert run.state == "finished"
    else:
        assert run.state == "failed" and "in every step all rollouts of a group had equal rewards" in run.failure
