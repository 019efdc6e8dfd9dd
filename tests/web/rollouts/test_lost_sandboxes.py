"""A policy that can end its own sandbox keeps neither its rollout nor its group out of the database."""

from __future__ import annotations

import asyncio

import pytest

from composer_web.core.artifacts import artifacts
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.worker.accepting import accept_result
from composer_web.rollouts.worker.recorder import Recorder
from composer_web.runs.models import Run
from sandbox.backends.choice import default_backend
from sandbox.grading.verdict.outcomes import Cause
from sandbox.tasks.environments import EnvironmentStore
from tests.trainer.rollouts.scripted import ScriptedClient, call
from tests.trainer.rollouts.weak import Weak
from tests.trainer.stages.memory import BASE_POLICY
from tests.web.making import claim
from trainer.config import RLConfig
from trainer.policy import load_tokenizer, make_renderer
from trainer.rollouts.group import GroupResult, run_group
from trainer.types import TrainGroup

pytestmark = [pytest.mark.django_db, pytest.mark.integration]
BREAKS = [[call("run_terminal_cmd", command="echo break it")], [call("finish")]]


def test_the_rollout_is_stored_as_failed_and_its_group_is_trained_on(running: Run, tmp_path) -> None:
    services.pump(run_id=running.pk)
    claimed = claim(Group.objects.filter(run=running).earliest("prompt_index"))
    group, held = claimed.group, claimed.held
    stage = group.run.configuration.stage if group.run else None
    assert isinstance(stage, RLConfig)
    task, recorder = group.task_version.bundle, Recorder(f"groups/{group.pk}/{held.token}")
    renderer = make_renderer(load_tokenizer(BASE_POLICY))

    async def play() -> GroupResult:
        backend = default_backend()
        try:
            return await run_group(
                task=task,
                group_id=f"{group.pk}-1",
                prompt_index=group.prompt_index,
                config=stage,
                client=ScriptedClient(renderer, BREAKS, [[call("finish")]]),
                renderer=renderer,
                backend=Weak(backend, lambda _, what: "break" in what),
                environments=EnvironmentStore(tmp_path),
                deployment="policy",
                seed=1,
                dispatched_version=0,
                store=recorder,
            )
        finally:
            await backend.close()

    result = asyncio.run(play())
    assert result.infra_errors == (), "nothing is played again"
    assert accept_result(group=group, held=held, task=task, config=stage, result=result, recorder=recorder)
    group.refresh_from_db()
    rollouts = Rollout.objects.filter(group=group)
    broken, others = rollouts.get(outcome=Cause.SANDBOX_BROKEN_BY_WORK), rollouts.exclude(stop_reason="sandbox_broken")
    assert group.state == "accepted"
    assert (broken.verdict, broken.reward) == ("failed", 0.0)
    assert broken.stop_reason == "sandbox_broken" and "held without them" in broken.cause
    assert [(rollout.verdict, rollout.stop_reason) for rollout in others] == [("failed", "finished")]
    assert len(artifacts().get_model(group.train_key, TrainGroup).rewards) == stage.group_size
