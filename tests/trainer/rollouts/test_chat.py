"""Episodes of a policy behind an OpenAI-compatible endpoint: same sandbox and grading, failures are infrastructure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr

from sandbox.grading.verdict.outcomes import Cause
from sandbox.harness.types import StopReason, ToolErrorKind
from tests.chat_server import ChatServer, Model, completion, said, solver
from trainer.config import RewardConfig
from trainer.inference.chat import ChatClient, Endpoint, read_reply
from trainer.inference.contract import InferenceError
from trainer.rollouts.chat import ChatServices, run_chat_episode
from trainer.rollouts.interruption import Interruption, obeyed
from trainer.rollouts.turns import EpisodeSettings
from trainer.toy.preset import toy_harness, toy_sampling
from trainer.types import Trajectory

SAMPLING = toy_sampling(max_turn_tokens=4096, max_context_tokens=100_000, max_turns=6, engine_seconds=1.0)


@pytest.fixture
def play(task, environments, backend):
    async def one(model: Model, *, key: str = "", interruption: Interruption | None = None, **more: Any) -> Trajectory:
        settings = EpisodeSettings(
            SAMPLING.model_copy(update=more.pop("sampling", {})),
            toy_harness(profile="full", end_on_malformed_call=False),
            RewardConfig(),
            interruption,
        )
        with ChatServer(model, key=key) as server:
            async with ChatClient(Endpoint(url=server.url, model="m", key=SecretStr(key), **more)) as client:
                services = ChatServices(client, backend, environments, asyncio.Semaphore(2))
                return await run_chat_episode(task=task, sample=0, settings=settings, services=services)

    return one


async def test_an_endpoint_solves_a_task(play, task) -> None:
    done = await play(solver([task]), key="secret")
    assert (done.verdict, done.stop_reason) == ("passed", StopReason.FINISHED)
    assert [[call.name for call in turn.calls] for turn in done.turns] == [["list_dir"], ["write_file"], ["finish"]]
    assert done.segments == ()
    assert done.usage is not None
    assert (done.output_tokens, done.usage.written) == (21, 21)
    assert done.usage.read > done.usage.window > 0
    assert done.reward is not None


async def test_failures_of_the_endpoint_are_no_scores(play) -> None:
    refused = await play(lambda request: (403, {"error": {"message": "no such account"}}))
    assert (refused.verdict, refused.report.outcome) == ("infra_error", Cause.ENGINE_FAILED)
    assert "no such account" in refused.report.cause
    assert refused.reward is None
    broken = await play(lambda request: (200, b"not json"))
    assert (broken.verdict, broken.stop_reason) == ("infra_error", StopReason.INFRA_ERROR)
    uncounted = await play(lambda request: (200, {"choices": [{"message": {"content": "x"}}]}))
    assert "how many tokens" in uncounted.report.cause


async def test_a_busy_endpoint_is_asked_again(play, task) -> None:
    answers = iter([(429, {"error": {"message": "slow down"}}), (503, {})])
    solve = solver([task])
    done = await play(lambda request: next(answers, None) or solve(request), sampling={"engine_seconds": 30.0})
    assert done.verdict == "passed"


async def test_a_transcript_that_outgrows_the_window_is_graded(play) -> None:
    long = (400, {"error": {"message": "too long", "code": "context_length_exceeded"}})
    done = await play(
        lambda request: long if said(request, "tool") else completion(request, "", [("list_dir", {"path": "."})])
    )
    assert (done.verdict, done.stop_reason) == ("failed", StopReason.TOKEN_LIMIT)


async def test_a_window_that_the_opening_prompt_fills_is_no_failure_of_the_policy(play) -> None:
    done = await play(lambda request: (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}))
    assert (done.verdict, done.turns) == ("infra_error", ())


async def test_a_malformed_call_is_told_to_the_policy(play) -> None:
    def model(request: dict[str, Any]) -> tuple[int, Any]:
        if not said(request, "tool"):
            return completion(request, "", [("grep", '{"pattern": '), ("list_dir", {"path": "."})])
        return completion(request, "I give up.")

    done = await play(model)
    assert done.stop_reason is StopReason.NO_TOOL_CALL
    assert [result.error.kind for result in done.turns[0].results] == [ToolErrorKind.MALFORMED_CALL] * 2
    assert done.turns[1].text == "I give up."


async def test_an_interruption_reaches_the_policy(play, task) -> None:
    heeded = await play(solver([task]), interruption=Interruption(after_turns=1))
    assert heeded.turns[0].asked.startswith("Stop here")
    assert (len(heeded.turns), obeyed(heeded), heeded.verdict) == (2, True, "failed")

    def deaf(request: dict[str, Any]) -> tuple[int, Any]:
        answers = len(said(request, "tool"))
        names = [("list_dir", {"path": "."}), ("write_file", {"path": "a.txt", "content": "a"}), ("finish", {})]
        return completion(request, "", [names[min(answers, 2)]])

    assert obeyed(await play(deaf, interruption=Interruption(after_turns=1))) is False
    assert obeyed(await play(solver([task]))) is None


@pytest.mark.parametrize(
    "message",
    [{"tool_calls": [{"function": {"name": "x", "arguments": "{}"}}]}, {"content": 3}, {"tool_calls": [7]}, None],
)
def test_answers_of_another_shape_are_failures_of_the_endpoint(message: Any) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    with pytest.raises(InferenceError):
        read_reply({"choices": [{"message": message}], "usage": usage})
    with pytest.raises(InferenceError):
        read_reply({"choices": [], "usage": usage})
