"""Episodes of other model families: their own calls, stop tokens and tool outputs, in the same loop."""

from __future__ import annotations

import pytest

from sandbox.grading.verdict.report import Verdict
from tests.trainer.policy.families import FAMILIES
from tests.trainer.policy.test_families import renderer_of
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from tests.trainer.rollouts.test_episode import play
from trainer.policy import ChatRenderer

ROOM = {"max_context_tokens": 60_000, "max_turn_tokens": 4_000}
"""These vocabularies are of bytes."""


@pytest.fixture(params=["qwen3", "kimi-k2", "glm-4.5", "gpt-oss"])
def renderer(request: pytest.FixtureRequest) -> ChatRenderer:
    return renderer_of(next(family for family in FAMILIES if family.name == request.param))


async def test_a_solved_task_passes_and_its_tokens_are_those_of_the_renderer(services, renderer, task) -> None:  # type: ignore[no-untyped-def]
    trajectory = await play(services, task, ScriptedClient(renderer, solution(task)), sampling=ROOM)
    assert trajectory.verdict is Verdict.PASSED
    (segment,) = trajectory.segments
    for turn, following in zip(trajectory.turns, trajectory.turns[1:], strict=False):
        said, before = segment.tokens[turn.token_start : turn.token_end], segment.tokens[: turn.token_start]
        assert said[-1] in renderer.stop_ids
        between = segment.tokens[turn.token_end : following.token_start]
        assert between == renderer.observe(turn.results, said=said, before=before)
        assert all(result.output in renderer.text(between).replace("\\n", "\n") for result in turn.results)


async def test_a_call_that_does_not_parse_is_answered_and_the_episode_goes_on(services, renderer, task) -> None:  # type: ignore[no-untyped-def]
    broken = renderer.turn([call("grep", pattern="x")])
    script = [renderer.text(broken[: len(broken) // 2]), [call("finish")]]
    trajectory = await play(
        services, task, ScriptedClient(renderer, script), sampling=ROOM, harness={"end_on_malformed_call": False}
    )
    assert trajectory.verdict is Verdict.FAILED, "the policy's failure, and not the machinery's"
