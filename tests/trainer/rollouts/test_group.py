import asyncio

import pytest

from sandbox.grading.report import Verdict
from sandbox.harness.types import StopReason
from tests.trainer.rollouts.make import trajectory
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from trainer.config import RLConfig, SamplingConfig
from trainer.inference.contract import InferenceError
from trainer.learning.metrics import describe
from trainer.rollouts.group import build_train_group, episode_seed, group_stats, run_group


def config(**changes) -> RLConfig:
    sampling = SamplingConfig(max_turn_tokens=600, max_context_tokens=2000)
    return RLConfig(**({"group_size": 4, "infra_retries": 1, "sampling": sampling} | changes))


async def run(task, client, renderer, backend, environments, **changes):
    seen = []

    async def remember(t):
        seen.append(t)

    result = await run_group(
        task=task,
        group_id="g7",
        prompt_index=7,
        config=config(),
        client=client,
        renderer=renderer,
        backend=backend,
        environments=environments,
        deployment="policy",
        seed=0,
        dispatched_version=2,
        on_trajectory=remember,
        **changes,
    )
    return result, seen


async def test_rewards_become_advantages_on_policy_tokens(task, renderer, backend, environments):
    client = ScriptedClient(renderer, solution(task), [[call("finish")]])
    result, seen = await run(task, client, renderer, backend, environments)
    group = result.train_group
    assert sorted(group.rewards) == [0.0, 0.0, 1.0, 1.0]
    assert (group.group_id, group.prompt_index, group.dispatched_version, group.oldest_version) == ("g7", 7, 2, 3)
    assert len(seen) == len(result.trajectories) == 4
    assert [t.sample for t in result.trajectories] == [0, 1, 2, 3]
    for sample, t, reward in zip(group.samples, result.trajectories, group.rewards, strict=True):
        assert sample.tokens == t.segments[0].tokens
        assert sample.advantages == [(reward - 0.5) * m for m in sample.loss_mask]
    assert group.labels == {"source": task.source}
    assert group.stats["verdict/passed"] == 0.5
    assert group.stats["groups/solved_some"] == 1.0
    assert result.infra_errors == ()


async def test_a_lost_attempt_is_run_again(task, renderer, backend, environments):
    # The first session fails; the four others (three samples and the second attempt) finish.
    client = ScriptedClient(renderer, [InferenceError("gone")], *[[[call("finish")]]] * 4)
    result, seen = await run(task, client, renderer, backend, environments)
    assert result.train_group is not None
    assert len(result.infra_errors) == 1
    assert "gone" in result.infra_errors[0]
    assert [t.verdict for t in seen].count(Verdict.INFRA_ERROR) == 1
    assert len(seen) == 5
    assert result.train_group.stats["infra/retries"] == 1.0


async def test_a_group_without_all_verdicts_is_not_accepted(task, renderer, backend, environments):
    client = ScriptedClient(renderer, [InferenceError("gone")])
    result, seen = await run(task, client, renderer, backend, environments)
    assert result.train_group is None
    assert len(result.infra_errors) == len(seen) == 8
    assert all(t.reward is None for t in result.trajectories)


async def test_slots_bound_the_sandboxes(task, renderer, backend, environments):
    slots = asyncio.Semaphore(1)
    running = most = 0

    class Counting(ScriptedClient):
        async def generate(self, request):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            try:
                return await super().generate(request)
            finally:
                running -= 1

    client = Counting(renderer, [[call("finish")]])
    result, _ = await run(task, client, renderer, backend, environments, slots=slots)
    assert result.train_group is not None
    assert most == 1


def test_numbers_of_a_group_by_hand():
    group = [
        trajectory(Verdict.PASSED, StopReason.FINISHED, reward=1.0),
        trajectory(Verdict.FAILED, StopReason.TURN_LIMIT, reward=0.0, calls=4),
    ]
    stats = group_stats(group, lost_attempts=3)
    assert stats["tokens/policy"] == 6.0
    assert stats["tokens/total"] == 14.0
    assert (stats["turns/mean"], stats["calls/mean"]) == (2.0, 3.0)
    assert (stats["stop/finished"], stats["stop/turn_limit"], stats["truncated"]) == (0.5, 0.5, 0.5)
    assert (stats["groups/solved_none"], stats["groups/solved_some"], stats["groups/solved_all"]) == (0.0, 1.0, 0.0)
    assert stats["infra/retries"] == 3.0
    for name in stats:
        describe(name)


def test_lengths_by_outcome():
    short = trajectory(Verdict.PASSED, StopReason.FINISHED, reward=1.0)
    long = trajectory(Verdict.FAILED, reward=0.0).model_copy(update={"turns": (*short.turns, *short.turns)})
    stats = group_stats([short, short, long])
    assert (stats["turns/passed"], stats["turns/failed"]) == (len(short.turns), 2.0 * len(short.turns))
    assert stats["turns/mean"] == pytest.approx(4 / 3 * len(short.turns))
    assert stats["tokens/policy/passed"] == stats["tokens/policy/failed"] == stats["tokens/policy"] == 6.0
    assert stats["tokens/total/passed"] == 14.0
    none = group_stats([long])
    assert "turns/passed" not in none and none["tokens/total/failed"] == 14.0
    for name in stats:
        describe(name)


def test_a_group_with_missing_rewards_is_refused():
    with pytest.raises(ValueError, match="1 trajectories have no reward"):
        build_train_group(
            [trajectory(reward=1.0), trajectory(reward=None)], group_id="g", prompt_index=0, config=RLConfig()
        )


def test_attempts_have_seeds_of_their_own():
    seeds = {episode_seed(s, p, k) for s in range(3) for p in range(50) for k in range(8)}
    assert len(seeds) == 3 * 50 * 8
