"""Attempts that outlive their worker, turns that outlive new weights, and attempts that are cut: in real sandboxes."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.backends.snapshots import SnapshotStore
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.profile import get_profile
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from trainer.config import OrchestratorConfig, RLConfig
from trainer.inference.contract import GenerateResponse, InferenceError, VersionSpan
from trainer.rollouts.checkpoint import RolloutCheckpoint
from trainer.rollouts.group import run_group
from trainer.rollouts.stragglers import CUT
from trainer.rollouts.turn import CONTINUATIONS
from trainer.toy.preset import toy_harness, toy_rl, toy_sampling

PROFILE = get_profile("full")


def config(**changes) -> RLConfig:
    settings = {
        "group_size": 2,
        "infra_retries": 0,
        "harness": toy_harness(snapshot_every=1, profile=PROFILE.name),
        "sampling": toy_sampling(max_turn_tokens=600, max_context_tokens=4000),
    }
    return toy_rl(**(settings | changes))


class Kept:
    """Partials in memory, as text: what another process would read."""

    def __init__(self) -> None:
        self.text: dict[int, str] = {}

    async def save(self, checkpoint: RolloutCheckpoint) -> None:
        self.text[checkpoint.sample] = checkpoint.model_dump_json()

    async def load(self, sample: int) -> RolloutCheckpoint | None:
        return RolloutCheckpoint.model_validate_json(self.text[sample]) if sample in self.text else None


@pytest.fixture
def play(task, renderer, environments, backend, tmp_path):
    store = SnapshotStore(tmp_path / "snapshots")

    async def run(client, *, checkpoints=None, **changes):
        return await run_group(
            task=task,
            group_id="g",
            prompt_index=0,
            config=config(**changes),
            client=client,
            renderer=renderer,
            backend=backend,
            environments=environments,
            deployment="policy",
            seed=3,
            snapshots=store,
            checkpoints=checkpoints,
        )

    return run


def work(task):
    """Plan, mend all files with one call each, finish."""
    plan = call("todo_write", items=[{"content": "mend it", "status": "in_progress"}])
    return [[plan], *solution(task)]


async def test_a_lost_attempt_goes_on_from_its_last_snapshot(play, task, renderer):
    script, kept = work(task), Kept()
    # The first worker dies after the files are mended: the engine it asks never answers, and its group is cancelled.
    dying = ScriptedClient(renderer, [*script[:-1], None], versions=(3,))
    first = asyncio.create_task(play(dying, checkpoints=kept))
    async with asyncio.timeout(60):
        while len(dying.requests) < 2 * len(script):
            await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert sorted(kept.text) == [0, 1]

    again = ScriptedClient(renderer, script[-1:], versions=(4,))
    result = await play(again, checkpoints=kept)
    assert len(again.requests) == 2  # only what was not done
    for trajectory in result.trajectories:
        # Graded on the work of both workers; every token is the policy's own, with the version that sampled it.
        assert trajectory.verdict is Verdict.PASSED
        assert [turn.index for turn in trajectory.turns] == list(range(len(script)))
        segment = trajectory.segments[0]
        assert (trajectory.oldest_version, trajectory.newest_version, trajectory.version_count) == (3, 4, 2)
        for turn in trajectory.turns:
            span = slice(turn.token_start, turn.token_end)
            assert set(segment.loss_mask[span]) == {1}
            assert set(segment.versions[span]) == {4 if turn is trajectory.turns[-1] else 3}
    last = again.requests[0]
    assert last.seed not in {request.seed for request in dying.requests if request.prompt_ids != last.prompt_ids}


async def test_without_a_usable_snapshot_it_begins_again(play, task, renderer):
    script, kept = work(task), Kept()
    await play(ScriptedClient(renderer, script), checkpoints=kept)
    for sample, text in kept.text.items():
        digest = RolloutCheckpoint.model_validate_json(text).snapshot
        kept.text[sample] = text.replace(digest, "0" * len(digest))
    client = ScriptedClient(renderer, script)
    result = await play(client, checkpoints=kept)
    assert len(client.requests) == 2 * len(script)
    assert {trajectory.verdict for trajectory in result.trajectories} == {Verdict.PASSED}


async def test_and_it_can_be_turned_off(play, task, renderer):
    script, kept = work(task), Kept()
    off = OrchestratorConfig(resume_rollouts=False)
    await play(ScriptedClient(renderer, script), checkpoints=kept, orchestrator=off)
    assert kept.text == {}


class Aborting:
    """Stops each turn after three tokens to take up other weights, and goes on with the next version when asked again."""

    def __init__(self, inner: ScriptedClient, *, aborts: int) -> None:
        self.inner, self.aborts, self.left = inner, aborts, {}

    async def generate(self, request):
        whole = self.left.pop(request.session, None)
        if whole is None:
            whole = (await self.inner.generate(request)).token_ids, 0
        tokens, count = whole
        part, rest = (tokens[:3], tokens[3:]) if count < self.aborts else (tokens, [])
        if rest or count < self.aborts:
            self.left[request.session] = (rest, count + 1)
        return GenerateResponse(
            token_ids=part,
            logprobs=[-0.25] * len(part),
            spans=[VersionSpan(version=3 + count, start=0, end=len(part))] if part else [],
            finish_reason="abort" if count < self.aborts else "stop",
        )


async def test_a_turn_stopped_for_new_weights_goes_on_where_it_was(play, task, renderer):
    plain = await play(ScriptedClient(renderer, solution(task)))
    swapped = await play(Aborting(ScriptedClient(renderer, solution(task)), aborts=2))
    for one, other in zip(plain.trajectories, swapped.trajectories, strict=True):
        assert other.verdict is Verdict.PASSED
        assert other.segments[0].tokens == one.segments[0].tokens
        assert other.segments[0].loss_mask == one.segments[0].loss_mask
        turn = other.turns[0]
        versions = other.segments[0].versions[turn.token_start : turn.token_end]
        assert versions == [3] * 3 + [4] * 3 + [5] * (len(versions) - 6)
    assert swapped.train_group.newest_version == 5
    assert swapped.train_group.stats["staleness/versions"] == 3.0


async def test_an_engine_that_only_aborts_loses_the_episode(play, task, renderer):
    result = await play(Aborting(ScriptedClient(renderer, solution(task)), aborts=10**6))
    assert result.train_group is None
    assert f"aborted one turn {CONTINUATIONS + 1} times" in result.infra_errors[0].message


async def test_a_version_that_goes_back_is_a_lost_episode_with_its_cause(play, task, renderer):
    result = await play(ScriptedClient(renderer, solution(task), versions=(5, 3)))
    assert result.train_group is None
    assert "InvalidEngineResponse: the engine's version spans" in result.infra_errors[0].message


class Slow(ScriptedClient):
    """Never answers one session."""

    async def generate(self, request):
        if request.session.startswith("g-2-"):
            await asyncio.Event().wait()
        return await super().generate(request)


async def test_a_straggler_is_cut_once_the_rest_has_ended(play, task, renderer):
    settings = OrchestratorConfig(straggler_policy="trim", straggler_timeout_factor=1.5, straggler_min_share=0.5)
    seen = Slow(renderer, solution(task), [[call("finish")]])
    async with asyncio.timeout(100):
        result = await play(seen, group_size=3, orchestrator=settings)
    last = result.trajectories[2]
    assert (last.sample, last.verdict, last.reward, last.report.cause) == (2, Verdict.INFRA_ERROR, None, CUT)
    group = result.train_group
    assert sorted(group.rewards) == [0.0, 1.0]  # the baseline is that of the two that ended
    assert {max(sample.advantages, key=abs) for sample in group.samples} == {0.5, -0.5}
    assert group.stats["rollouts/cut"] == pytest.approx(1 / 3)
    assert result.infra_errors == ()


async def test_or_waited_for_until_its_own_end(play, task, renderer):
    class Failing(Slow):
        async def generate(self, request):
            if request.session.startswith("g-2-"):
                raise InferenceError("gone")
            return await ScriptedClient.generate(self, request)

    result = await play(Failing(renderer, solution(task)), group_size=3)
    assert result.train_group is None and "gone" in result.infra_errors[0].message
