import asyncio
import json

import pytest

from sandbox.grading.audit.judge import Endpoint
from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, Fault
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.types import StopReason
from tests.sandbox.grading.audit.model_server import Server, boundary_of, completion
from tests.trainer.rollouts.make import trajectory
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from trainer.config import BehaviourConfig, RewardConfig, RLConfig
from trainer.inference.contract import InferenceError
from trainer.learning.metrics import describe
from trainer.rewards import rubric
from trainer.rollouts import ending
from trainer.rollouts.group import build_train_group, episode_seed, group_stats, run_attempts, run_group
from trainer.toy.preset import toy_rl, toy_sampling


def config(**changes) -> RLConfig:
    sampling = toy_sampling(max_turn_tokens=600, max_context_tokens=2000)
    return toy_rl(**({"group_size": 4, "infra_retries": 1, "sampling": sampling} | changes))


async def run(task, client, renderer, backend, environments, *, settings=None, **changes):
    seen = []

    async def remember(t):
        seen.append(t)

    result = await run_group(
        task=task,
        group_id="g7",
        prompt_index=7,
        config=settings or config(),
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
    assert result.infra_errors[0].outcome is Cause.ENGINE_FAILED and "gone" in result.infra_errors[0].message
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
            [trajectory(reward=1.0), trajectory(reward=None)], group_id="g", prompt_index=0, config=toy_rl()
        )


def test_attempts_have_seeds_of_their_own():
    seeds = {episode_seed(s, p, k) for s in range(3) for p in range(50) for k in range(8)}
    assert len(seeds) == 3 * 50 * 8


@pytest.fixture
def grading_model(monkeypatch):
    """A language model behind a real HTTP server that grades rollouts; tries follow each other at once."""
    monkeypatch.setattr(ending, "REWARD_PAUSES", (0.0, 0.0))
    server = Server()
    server.reply = lambda request: (200, completion(grades(request)))
    rubric.use(lambda: rubric.RewardJudge(Endpoint(url=server.url, model="model-a", timeout=20.0)))
    yield server
    rubric.use(lambda: None)
    server.close()


def grades(request) -> str:
    rows = [{"aspect": aspect.id, "grade": 4, "reason": "r"} for aspect in rubric.reward_rubric().aspects]
    return json.dumps({"record": boundary_of(request), "grades": rows})


GRADED = RewardConfig(tests_weight=0.0, behaviour=BehaviourConfig(rubric=0.5))
UNUSABLE = (200, completion("no JSON"))


async def test_a_failed_grade_is_asked_for_again_and_nothing_is_played_again(
    grading_model, task, renderer, backend, environments
):
    grading_model.reply = lambda request: (
        UNUSABLE if len(grading_model.requests) <= 2 else (200, completion(grades(request)))
    )
    client = ScriptedClient(renderer, [[call("finish")]])
    result, seen = await run(task, client, renderer, backend, environments, settings=config(reward=GRADED))
    assert result.train_group is not None and result.train_group.rewards == [0.5] * 4
    assert len(grading_model.requests) == 6
    assert len(seen) == 4 and result.infra_errors == ()


async def test_a_grade_that_goes_on_failing_costs_one_rollout_and_not_its_group(
    grading_model, task, renderer, backend, environments
):
    path = next(iter(task.gold))
    grading_model.reply = lambda request: (
        UNUSABLE if f"+++ b/{path}" in request["messages"][1]["content"] else (200, completion(grades(request)))
    )
    client = ScriptedClient(renderer, solution(task), *[[[call("finish")]]] * 3)
    result, seen = await run(task, client, renderer, backend, environments, settings=config(reward=GRADED))
    assert len(seen) == 4, "no episode is played again"
    assert result.train_group is not None and result.train_group.rewards == [0.5] * 3
    (lost,) = [t for t in result.trajectories if t.reward is None]
    assert lost.report.outcome is Cause.REWARD_FAILED
    assert result.train_group.stats["rollouts/reward_failed"] == 0.25
    assert "JudgeError" in result.infra_errors[0].message


async def test_fewer_than_two_grades_are_no_group(grading_model, task, renderer, backend, environments):
    grading_model.reply = lambda request: UNUSABLE
    client = ScriptedClient(renderer, [[call("finish")]])
    result, seen = await run(task, client, renderer, backend, environments, settings=config(reward=GRADED))
    assert result.train_group is None and len(seen) == 4


async def test_a_rollout_that_the_store_does_not_take_is_lost_alone():
    async def episode(sample: int, session: str, seed: int):
        if sample != 1:
            return trajectory(Verdict.PASSED, sample=sample, reward=float(sample))
        report = Report(verdict=Verdict.INFRA_ERROR, outcome=Cause.STORE_FAILED, cause="the store is full")
        return trajectory(Verdict.INFRA_ERROR, sample=sample).model_copy(update={"report": report})

    result = await run_attempts(episode, group_id="g", prompt_index=0, config=config(), seed=0)
    assert result.train_group is not None and result.train_group.rewards == [0.0, 2.0, 3.0]
    assert result.train_group.stats["rollouts/unstored"] == 0.25 and result.train_group.stats["infra/retries"] == 0.0
    assert [loss.outcome for loss in result.infra_errors] == [Cause.STORE_FAILED]


async def test_an_episode_that_raises_is_lost_alone_and_the_others_are_played_to_their_end():
    async def episode(sample: int, session: str, seed: int):
        if sample == 1:
            raise TypeError("unhashable type: 'list'")
        for _ in range(20):
            await asyncio.sleep(0)  # the others end after it
        return trajectory(Verdict.FAILED, sample=sample, reward=0.0)

    result = await run_attempts(episode, group_id="g", prompt_index=0, config=config(), seed=0)
    assert [t.verdict for t in result.trajectories] == ["failed", "infra_error", "failed", "failed"]
    assert result.trajectories[1].report.outcome is Cause.INTERNAL_ERROR
    assert result.train_group is None and result.loss.outcome is Cause.INTERNAL_ERROR
    assert "unhashable" in result.loss.message


async def test_a_group_that_is_lost_names_the_cause_of_the_sample_that_was_not_made_good():
    """Also where another attempt of the group was lost later and played again."""
    losses = {0: Cause.SANDBOX_LOST, 3: Cause.ENGINE_FAILED}

    async def episode(sample: int, session: str, seed: int):
        again = session.endswith("-1")
        if sample not in losses or (again and sample == 3):
            return trajectory(Verdict.PASSED, sample=sample, reward=1.0)
        cause = "the sandbox launcher ended twice"
        report = Report(verdict=Verdict.INFRA_ERROR, outcome=losses[sample], cause=cause)
        return trajectory(Verdict.INFRA_ERROR, sample=sample).model_copy(update={"report": report})

    result = await run_attempts(episode, group_id="g", prompt_index=0, config=config(), seed=0)
    assert result.train_group is None
    assert sorted(loss.outcome for loss in result.infra_errors) == ["engine_failed", "sandbox_lost", "sandbox_lost"]
    assert result.loss.outcome is Cause.SANDBOX_LOST and OUTCOMES[result.loss.outcome].fault is Fault.INSTALLATION
