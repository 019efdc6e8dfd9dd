"""Episodes in real sandboxes, with scripted turns: exact token accounting, every way to end, every kind of failure."""

import asyncio
import errno
import json
from dataclasses import replace

import pytest

from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.types import StopReason, ToolErrorKind, ToolResult
from sandbox.storable import storable_json
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from trainer.config import RewardConfig
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceError, VersionSpan
from trainer.rewards import reward_part
from trainer.rewards.parts import base
from trainer.rollouts import ending
from trainer.rollouts.ending import graded
from trainer.rollouts.episode import run_episode
from trainer.rollouts.limits import EpisodeLimits
from trainer.rollouts.losses import Scene
from trainer.rollouts.open_turn import OpenTurn
from trainer.rollouts.record import Record, opening_messages
from trainer.rollouts.turns import EpisodeSettings
from trainer.toy.preset import toy_harness, toy_sampling
from trainer.types import Trajectory


def settings(*, sampling=None, harness=None, reward=None) -> EpisodeSettings:
    return EpisodeSettings(
        toy_sampling(**({"max_turn_tokens": 600, "max_context_tokens": 2000} | (sampling or {}))),
        toy_harness(**(harness or {})),
        RewardConfig(**(reward or {})),
    )


async def play(services, task, client, **changes):
    return await run_episode(
        task=task, sample=0, session_id="s", seed=5, settings=settings(**changes), services=services(client)
    )


async def test_a_solved_task_passes_and_every_token_is_accounted_for(services, renderer, task):
    script = solution(task)
    client = ScriptedClient(renderer, script)
    trajectory = await play(services, task, client)
    assert trajectory.verdict is Verdict.PASSED
    assert trajectory.stop_reason is StopReason.FINISHED
    assert trajectory.reward == 1.0
    assert trajectory.patch.startswith("diff --git") or trajectory.patch.startswith("---")

    expected, mask = list(renderer.start(opening_messages(task))), []
    mask = [0] * len(expected)
    for index, (said, turn) in enumerate(zip(script, trajectory.turns, strict=True)):
        tokens = renderer.turn(said)
        assert (turn.token_start, turn.token_end) == (len(expected), len(expected) + len(tokens))
        expected += tokens
        mask += [1] * len(tokens)
        if index < len(script) - 1:
            shown = renderer.observe(turn.results)
            expected += shown
            mask += [0] * len(shown)
    [segment] = trajectory.segments
    assert segment.tokens == expected
    assert segment.loss_mask == mask
    assert segment.logprobs == [-0.25 * m for m in mask]
    assert segment.versions == [3 if m else -1 for m in mask]
    assert trajectory.output_tokens == sum(mask)
    # The engine was always given exactly what the episode records.
    assert [r.prompt_ids for r in client.requests] == [expected[: t.token_start] for t in trajectory.turns]


class Observer:
    """Notes what it hears, and what stood in the turn that was closed."""

    def __init__(self) -> None:
        self.turn: OpenTurn | None = None
        self.heard: list[tuple[int, str, bool]] = []

    def opened(self, turn: OpenTurn) -> None:
        assert self.turn is None and turn.token_ids == [] and not turn.sampled
        self.turn = turn

    def closed(self, sample: int) -> None:
        if self.turn is not None:
            assert self.turn.sample == sample
            self.heard.append((self.turn.index, self.turn.parse(self.turn.token_ids).text, self.turn.sampled))
        self.turn = None


async def test_an_observer_hears_of_each_turn_until_it_is_recorded(services, renderer, task):
    observer, script = Observer(), solution(task)
    client = ScriptedClient(renderer, script)
    on = replace(services(client), observer=observer)
    done = await run_episode(task=task, sample=0, session_id="s", seed=5, settings=settings(), services=on)
    assert observer.heard == [(turn.index, turn.text, True) for turn in done.turns] and len(done.turns) == len(script)
    unseen = await play(services, task, ScriptedClient(renderer, script))
    assert unseen.segments == done.segments, "as when nobody looks"
    lost = replace(services(ScriptedClient(renderer, [InferenceError("gone")])), observer=observer)
    ended = await run_episode(task=task, sample=0, session_id="t", seed=5, settings=settings(), services=lost)
    assert ended.verdict is Verdict.INFRA_ERROR
    assert observer.turn is None and observer.heard[-1] == (0, "", False)


async def test_wrong_work_fails_and_says_why(services, renderer, task):
    trajectory = await play(services, task, ScriptedClient(renderer, [[call("finish")]]))
    assert (trajectory.verdict, trajectory.reward) == (Verdict.FAILED, 0.0)
    assert "cases failed" in trajectory.report.cause
    assert trajectory.patch == ""


async def test_a_version_swap_within_a_turn_labels_each_token(services, renderer, task):
    trajectory = await play(services, task, ScriptedClient(renderer, [[call("finish")]], versions=(4, 5)))
    versions = [v for v in trajectory.segments[0].versions if v >= 0]
    assert set(versions) == {4, 5}
    assert versions == sorted(versions)
    assert (trajectory.oldest_version, trajectory.newest_version) == (4, 5)


async def test_a_final_message_without_a_call_ends_the_episode(services, renderer, task):
    trajectory = await play(services, task, ScriptedClient(renderer, ["all done"]))
    assert trajectory.stop_reason is StopReason.NO_TOOL_CALL


async def test_a_malformed_call_ends_the_episode_and_is_graded(services, renderer, task):
    script = [*solution(task)[:-1], '{"name": "finish", "argum']
    trajectory = await play(services, task, ScriptedClient(renderer, script))
    assert trajectory.stop_reason is StopReason.MALFORMED_CALL
    assert trajectory.verdict is Verdict.PASSED
    assert trajectory.reward == 0.0
    assert trajectory.turns[-1].results[0].error.kind is ToolErrorKind.MALFORMED_CALL


async def test_or_it_is_answered_with_an_error(services, renderer, task):
    script = ['{"name": "finish", "argum', [call("finish")]]
    client = ScriptedClient(renderer, script)
    trajectory = await play(services, task, client, harness={"end_on_malformed_call": False})
    assert trajectory.stop_reason is StopReason.FINISHED
    first = trajectory.turns[0].results[0]
    assert isinstance(first, ToolResult)
    assert first.output.startswith("error: ")
    shown = renderer.observe([first])
    assert client.requests[1].prompt_ids[-len(shown) :] == shown


async def test_tool_faults_are_shown_to_the_policy_and_do_not_end_it(services, renderer, task):
    script = [[call("read_file", path="nowhere.py")], [call("no_such_tool")], [call("finish")]]
    trajectory = await play(services, task, ScriptedClient(renderer, script))
    kinds = [turn.results[0].error.kind for turn in trajectory.turns[:2]]
    assert kinds == [ToolErrorKind.NOT_FOUND, ToolErrorKind.UNKNOWN_TOOL]
    assert trajectory.stop_reason is StopReason.FINISHED


async def test_a_policy_that_never_stops_runs_into_the_turn_limit(services, renderer, task):
    script = [[call("list_dir")]] * 5
    trajectory = await play(services, task, ScriptedClient(renderer, script), sampling={"max_turns": 3})
    assert trajectory.stop_reason is StopReason.TURN_LIMIT
    assert len(trajectory.turns) == 3
    assert trajectory.reward == 0.0
    # The observation after the last turn is not part of the transcript's policy tokens.
    assert trajectory.segments[0].loss_mask[-1] == 0


async def test_a_turn_that_is_cut_off_is_a_token_limit(services, renderer, task):
    trajectory = await play(services, task, ScriptedClient(renderer, [[40] * 900]), sampling={"max_turn_tokens": 50})
    assert trajectory.stop_reason is StopReason.TOKEN_LIMIT
    assert trajectory.output_tokens == 50
    assert trajectory.verdict is Verdict.FAILED


async def test_a_full_context_is_a_token_limit(services, renderer, task):
    prompt = len(renderer.start(opening_messages(task)))
    script = [[call("list_dir")]] * 50
    limits = {"max_turns": 50, "max_context_tokens": prompt + 60}
    trajectory = await play(services, task, ScriptedClient(renderer, script), sampling=limits)
    assert trajectory.stop_reason is StopReason.TOKEN_LIMIT
    assert max(turn.token_end for turn in trajectory.turns) <= prompt + 60


async def test_slow_tools_are_a_time_limit(services, renderer, task):
    script = [[call("run_terminal_cmd", command="sleep 0.3")]] * 3
    trajectory = await play(services, task, ScriptedClient(renderer, script), sampling={"episode_seconds": 0.2})
    assert trajectory.stop_reason is StopReason.TIME_LIMIT
    assert len(trajectory.turns) == 1
    assert trajectory.verdict is Verdict.FAILED


@pytest.mark.parametrize("fault", [InferenceError("the engine is gone"), None])
async def test_a_failing_engine_is_missing_data(services, renderer, task, fault):
    script = [[call("list_dir")], fault]
    limits = {"episode_seconds": 1.0, "engine_seconds": 2.0}
    trajectory = await play(services, task, ScriptedClient(renderer, script), sampling=limits)
    assert trajectory.verdict is Verdict.INFRA_ERROR
    assert trajectory.stop_reason is StopReason.INFRA_ERROR
    assert trajectory.reward is None
    assert trajectory.reward_parts == ()
    assert trajectory.report.cause
    assert len(trajectory.turns) == 1


async def test_a_reward_part_that_raises_is_missing_data(services, renderer, task, monkeypatch):
    monkeypatch.setattr(base, "REGISTRY", dict(base.REGISTRY))
    monkeypatch.setattr(ending, "REWARD_PAUSES", (0.0, 0.0, 0.0))

    @reward_part("broken")
    def broken(trajectory, config):
        raise KeyError("x")

    trajectory = await play(services, task, ScriptedClient(renderer, solution(task)))
    assert (trajectory.verdict, trajectory.reward) == (Verdict.INFRA_ERROR, None)
    assert "'broken' failed" in trajectory.report.cause


async def test_sampling_is_reproducible_and_sessions_are_shared_by_turns(services, renderer, task):
    clients = [ScriptedClient(renderer, solution(task)) for _ in range(2)]
    for client in clients:
        await play(services, task, client)
    seeds = [[request.seed for request in client.requests] for client in clients]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == len(seeds[0])
    assert {request.session for request in clients[0].requests} == {"s"}


async def test_a_visible_reward_believes_the_policys_own_checkout(services, renderer, task):
    """The hack that hidden tests refuse: rewrite the visible test and be paid."""
    test = next(path for path in task.environment.files if path.startswith("test_"))
    line = task.environment.files[test].splitlines()[-1].strip()
    hack = [[call("edit_file", path=test, old_string=line, new_string="assert True")], [call("finish")]]
    reward = {"tests_weight": 0.0, "visible_weight": 1.0}

    hacked = await play(services, task, ScriptedClient(renderer, hack), reward=reward)
    assert hacked.verdict is Verdict.FAILED
    assert (hacked.visible_passed, hacked.reward) == (True, 1.0)
    honest = await play(services, task, ScriptedClient(renderer, hack))
    assert (honest.verdict, honest.visible_passed, honest.reward) == (Verdict.FAILED, None, 0.0)
    idle = await play(services, task, ScriptedClient(renderer, [[call("finish")]]), reward=reward)
    assert (idle.visible_passed, idle.reward) == (False, 0.0)
    solved = await play(services, task, ScriptedClient(renderer, solution(task)), reward=reward)
    assert (solved.verdict, solved.visible_passed, solved.reward) == (Verdict.PASSED, True, 1.0)


# --- whose time it was, and what becomes of it ----------------------------------------------------------------------


def hanging(task, seconds: float):
    """The task with other limits of its tests, and a policy whose work never comes back."""
    verifier = task.verifier.model_copy(update={"timeout_seconds": seconds})
    work = [call("write_file", path=path, content="while True:\n    pass\n") for path in task.gold]
    return task.model_copy(update={"verifier": verifier}), [work, [call("finish")]]


@pytest.mark.integration
async def test_tests_that_never_end_are_a_failure_however_long_the_episode_may_take(services, renderer, task):
    slow, script = hanging(task, seconds=4.0)
    limits = {"episode_seconds": 1.0, "engine_seconds": 2.0}
    trajectory = await play(services, slow, ScriptedClient(renderer, script), sampling=limits)
    assert (trajectory.verdict, trajectory.report.outcome) == (Verdict.FAILED, Cause.TIME_OUT)
    assert (trajectory.stop_reason, trajectory.reward) == (StopReason.FINISHED, 0.0)
    assert trajectory.seconds["grade"] > 3.0, "longer than the episode's own limits"


async def test_calls_that_never_end_are_ended_with_the_episodes_time_and_their_work_is_graded(services, renderer, task):
    sleeps = [call("run_terminal_cmd", command="touch begun; sleep 30")] * 4
    limits = {"episode_seconds": 1.0, "engine_seconds": 4.0}
    trajectory = await play(services, task, ScriptedClient(renderer, [sleeps]), sampling=limits)
    assert (trajectory.verdict, trajectory.stop_reason) == (Verdict.FAILED, StopReason.TIME_LIMIT)
    assert trajectory.reward == 0.0 and "begun" in trajectory.patch
    assert [result.error.kind for result in trajectory.turns[0].results] == [ToolErrorKind.TIMEOUT] * 4


class Outcomes:
    """What `graded` makes of turns that take time on one side or the other."""

    def __init__(self, services, task):
        self.services, self.task = services(None), task

    async def of(self, act, **limits: float):
        bounds = EpisodeLimits.of(toy_sampling(**limits))
        on = self.services
        return await graded(
            Record.begin(self.task, None), bounds, lambda: act(bounds), task=self.task, sample=0, reward=RewardConfig(),
            slots=on.slots, backend=on.backend, environments=on.environments, scene=Scene(on.backend),
        )  # fmt: skip


async def test_whoever_used_the_time_up_is_measured(services, task):
    async def policy(limits):
        await asyncio.Event().wait()

    async def engine(limits):
        async with limits.machine.spending():
            await asyncio.Event().wait()

    async def bug(limits):
        raise ZeroDivisionError("a bug")

    outcomes = Outcomes(services, task)
    overtime = await outcomes.of(policy, episode_seconds=0.2, engine_seconds=0.2)
    assert (overtime.verdict, overtime.report.outcome) == (Verdict.FAILED, Cause.OVERTIME)
    assert (overtime.reward, overtime.stop_reason) == (0.0, StopReason.TIME_LIMIT)
    stuck = await outcomes.of(engine, episode_seconds=0.2, engine_seconds=0.2)
    assert (stuck.verdict, stuck.report.outcome, stuck.reward) == (Verdict.INFRA_ERROR, Cause.EPISODE_STUCK, None)
    broken = await outcomes.of(bug)
    assert (broken.verdict, broken.report.outcome) == (Verdict.INFRA_ERROR, Cause.INTERNAL_ERROR)


class Slow(ScriptedClient):
    """An engine that takes its time for each answer, and gives `gives` of it: all, as much as there is time for, or none."""

    def __init__(self, renderer, script, *, seconds: float, gives: str) -> None:
        super().__init__(renderer, script)
        self.seconds, self.gives = seconds, gives

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        await asyncio.sleep(min(self.seconds, request.timeout_seconds))
        if self.seconds <= request.timeout_seconds:
            return await super().generate(request)
        if self.gives == "nothing":
            raise InferenceError("no answer within the deadline")
        whole = await super().generate(request)
        span = VersionSpan(version=3, start=0, end=5)
        part = {
            "token_ids": whole.token_ids[:5],
            "logprobs": whole.logprobs[:5],
            "spans": [span],
            "finish_reason": "abort",
        }
        return whole.model_copy(update=part)


class ShortContext(ScriptedClient):
    """An engine whose context ends before the run's does: it cuts the turn and calls that its length."""

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        whole = await super().generate(request)
        part = {
            "token_ids": whole.token_ids[:3],
            "logprobs": whole.logprobs[:3],
            "spans": [VersionSpan(version=3, start=0, end=3)],
            "finish_reason": "length",
        }
        return whole.model_copy(update=part)


async def test_a_turn_that_the_engine_cuts_is_not_the_policys_failure(services, renderer, task):
    trajectory = await play(services, task, ShortContext(renderer, solution(task)))
    assert (trajectory.verdict, trajectory.reward) == (Verdict.INFRA_ERROR, None)
    assert trajectory.report.outcome is Cause.ENGINE_CONTEXT and "max_context_tokens" in trajectory.report.cause


async def test_an_opening_prompt_that_fills_the_context_is_not_the_policys_failure(services, renderer, task):
    prompt = len(renderer.start(opening_messages(task)))
    for context in (prompt - 1, prompt):
        sampling = {"max_context_tokens": context, "max_turn_tokens": 8}
        client = ScriptedClient(renderer, solution(task))
        trajectory = await play(services, task, client, sampling=sampling)
        assert (trajectory.verdict, trajectory.reward, client.requests) == (Verdict.INFRA_ERROR, None, [])
        assert trajectory.report.outcome is Cause.ENGINE_CONTEXT
        assert f"opening prompt has {prompt} tokens" in trajectory.report.cause
    little = await play(
        services, task, ScriptedClient(renderer, solution(task)),
        sampling={"max_context_tokens": prompt + 1, "max_turn_tokens": 8},
    )  # fmt: skip
    assert (little.verdict, little.stop_reason) == (Verdict.FAILED, StopReason.TOKEN_LIMIT), "it had a token"


LONG = [call("write_file", path="notes.txt", content="so be it\n")]


@pytest.mark.parametrize(
    ("seconds", "gives", "own"),
    [(0.4, "nothing", True), (9.0, "tokens", True), (9.0, "nothing", False)],
    ids=["many turns", "one turn without end", "an engine that hangs"],
)
async def test_time_that_the_policy_writes_away_is_its_own_and_an_engine_that_hangs_is_not(
    services, renderer, task, seconds, gives, own
):
    client = Slow(renderer, [LONG] * 60, seconds=seconds, gives=gives)
    limits = {"engine_seconds": 3.0, "max_turns": 60, "max_turn_tokens": 4000, "max_context_tokens": 9000}
    trajectory = await play(services, task, client, sampling=limits)
    if own:
        assert (trajectory.verdict, trajectory.report.outcome) == (Verdict.FAILED, Cause.TESTS_FAILED)
        assert (trajectory.stop_reason, trajectory.reward) == (StopReason.TIME_LIMIT, 0.0)
        assert trajectory.output_tokens >= 5, "what was sampled is kept"
        assert ("notes.txt" in trajectory.patch) is (gives == "nothing"), "and what it did is graded"
    else:
        assert trajectory.verdict is Verdict.INFRA_ERROR and trajectory.report.retry and trajectory.reward is None


# --- what a policy writes and no store can hold ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        '{"name": "run_terminal_cmd", "arguments": {"command": "echo \\ud800"}}',
        '{"name": "write_file", "arguments": {"path": "a\\u0000b", "content": "\\udfff"}}',
        '{"name": "read_file\\ud800", "arguments": {"\\ud800": 1e999, "n": 100000000000000000000000}}',
        '{"name": "read_file", "arguments": {"path": ' + "[" * 900 + "]" * 900 + "}}",
        '{"name": "run_terminal_cmd", "arguments": {"command": "printf \'\\\\0\\\\355\\\\240\\\\200\'"}}',
    ],
    ids=["surrogate", "NUL in a path", "odd numbers and names", "nested 900 deep", "output"],
)
async def test_whatever_a_policy_writes_is_an_answer_to_it_and_a_rollout_that_is_stored(
    services, renderer, task, written
):
    script = [written, [call("finish")]]
    limits = {"sampling": {"max_turn_tokens": 4000, "max_context_tokens": 9000}}
    trajectory = await play(
        services, task, ScriptedClient(renderer, script), harness={"end_on_malformed_call": False}, **limits
    )
    assert (trajectory.verdict, trajectory.stop_reason) == (Verdict.FAILED, StopReason.FINISHED)
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert storable_json(json.loads(trajectory.model_dump_json()))[1] == ""


async def test_a_rollout_that_cannot_be_stored_for_its_content_has_failed_and_one_for_our_store_is_missing(
    services, renderer, task, monkeypatch
):
    kept = []

    async def refuses(trajectory):
        if trajectory.turns:
            raise ValueError("a serialiser refuses it")
        kept.append(trajectory)

    monkeypatch.setattr(ending, "STORE_PAUSES", (0.0, 0.0))
    tries = []

    async def full(trajectory):
        tries.append(trajectory)
        raise OSError(errno.ENOSPC, "No space left on device")

    async def full_at_first(trajectory):
        kept.append(trajectory)
        if len(kept) < 3:
            raise OSError(errno.EIO, "Input/output error")

    async def stored_by(store):
        on = replace(services(ScriptedClient(renderer, solution(task))), store=store)
        return await run_episode(task=task, sample=0, session_id="s", seed=5, settings=settings(), services=on)

    failed = await stored_by(refuses)
    assert (failed.verdict, failed.report.outcome, failed.reward) == (Verdict.FAILED, Cause.UNSTORABLE, 0.0)
    assert kept == [failed] and failed.output_tokens > 0, "its tokens are trained on"
    lost = await stored_by(full)
    assert (lost.verdict, lost.report.outcome, lost.reward) == (Verdict.INFRA_ERROR, Cause.STORE_FAILED, None)
    assert len(tries) == 3
    kept.clear()
    saved = await stored_by(full_at_first)
    assert saved.verdict is Verdict.PASSED and kept == [saved] * 3, "what was played is stored again, not played again"
