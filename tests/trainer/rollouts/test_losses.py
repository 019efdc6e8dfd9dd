"""Sandboxes that are lost while a policy works in them: its own doing is a failure, the machine's is none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.types import StopReason
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from tests.trainer.rollouts.test_episode import settings
from tests.trainer.rollouts.test_group import config, run
from tests.trainer.rollouts.weak import Weak
from trainer.rollouts.episode import run_episode

BREAKS = [[call("run_terminal_cmd", command="echo break it")], [call("finish")]]
HARMLESS = [[call("run_terminal_cmd", command="echo all is well")], [call("finish")]]


async def play(services, task, client, weak):
    on = replace(services(client), backend=weak)
    return await run_episode(task=task, sample=0, session_id="s", seed=5, settings=settings(), services=on)


@pytest.mark.parametrize("when", ["at once", "later"])
async def test_a_policy_that_breaks_its_sandbox_has_failed(services, renderer, task, backend, when):
    weak = Weak(backend, lambda _, what: "break" in what and ("diff" in what) is (when == "later"))
    trajectory = await play(services, task, ScriptedClient(renderer, BREAKS), weak)
    assert (trajectory.verdict, trajectory.reward) == (Verdict.FAILED, 0.0)
    assert trajectory.report.outcome is Cause.SANDBOX_BROKEN_BY_WORK and not trajectory.report.retry
    assert trajectory.stop_reason is StopReason.SANDBOX_BROKEN
    assert weak.started == 3, "the episode's, one with its calls, one without"
    assert sum(trajectory.segments[0].loss_mask) > 0, "what broke it is trained on"


async def test_a_sandbox_that_the_machine_loses_once_is_no_failure(services, renderer, task, backend):
    weak = Weak(backend, lambda number, what: number == 1)
    trajectory = await play(services, task, ScriptedClient(renderer, HARMLESS), weak)
    assert trajectory.verdict is Verdict.INFRA_ERROR and trajectory.report.retry and trajectory.reward is None


@pytest.mark.parametrize("starts", [1, 2, 1000], ids=["nothing starts", "the check does not start", "all die"])
async def test_a_machine_that_holds_no_sandbox_fails_itself(services, renderer, task, backend, starts):
    weak = Weak(backend, lambda *_: True, starts)
    trajectory = await play(services, task, ScriptedClient(renderer, HARMLESS), weak)
    assert trajectory.verdict is Verdict.INFRA_ERROR and trajectory.report.retry and trajectory.reward is None


async def test_a_loss_before_the_policys_first_call_is_the_machines(services, renderer, task, backend):
    weak = Weak(backend, lambda _, what: what == "diff")
    trajectory = await play(services, task, ScriptedClient(renderer, ["I give up."]), weak)
    assert trajectory.verdict is Verdict.INFRA_ERROR
    assert weak.started == 1


async def test_a_rollout_whose_sandbox_is_lost_in_two_attempts_has_failed(task, renderer, backend, environments):
    """Also where its calls are harmless when they are replayed: they may wait for a time of day."""
    said: list[str] = []

    def every_other_time(_: int, what: str) -> bool:
        said.extend([what] * ("break" in what and "diff" not in what))
        return "break" in what and "diff" not in what and len(said) % 2 == 1

    weak = Weak(backend, every_other_time)
    many, one = config(group_size=2, infra_retries=5), asyncio.Semaphore(1)
    result, seen = await run(
        task, ScriptedClient(renderer, BREAKS), renderer, weak, environments, settings=many, slots=one
    )
    broken = [t for t in result.trajectories if t.report.outcome is Cause.SANDBOX_BROKEN_BY_WORK]
    assert broken and result.train_group is not None
    assert len(seen) == 4, "each was played twice"


async def test_the_right_work_of_others_is_not_touched(task, renderer, backend, environments):
    weak = Weak(backend, lambda _, what: "break" in what)
    client = ScriptedClient(renderer, solution(task), BREAKS)
    result, seen = await run(task, client, renderer, weak, environments, settings=config(group_size=2))
    assert sorted(result.train_group.rewards) == [0.0, 1.0]
    assert result.infra_errors == () and len(seen) == 2
