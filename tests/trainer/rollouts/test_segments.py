"""Episodes that outgrow a context window, for real: sandboxes, tools, grading; a script says what the policy says."""

from __future__ import annotations

import pytest

from sandbox.grading.verdict.report import Verdict
from sandbox.harness.profile import get_profile
from sandbox.harness.session import prompt, schemas_of
from sandbox.harness.tools.base import Todo
from sandbox.harness.types import StopReason, ToolResult
from tests.trainer.rollouts.make import trajectory
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from trainer.algorithms import group_streams
from trainer.config import RewardConfig, SummaryConfig
from trainer.rewards.parts.length import effort
from trainer.rollouts.episode import run_episode
from trainer.rollouts.group import group_stats
from trainer.rollouts.segments import LEFT_OUT, Windows, last_turns, read_summary, state
from trainer.rollouts.turns import EpisodeSettings
from trainer.toy.preset import toy_harness, toy_rl, toy_sampling
from trainer.types import Trajectory, Turn

PLAN = [{"content": "read", "status": "done"}, {"content": "mend", "status": "pending"}]
SUMMARY = "I looked around. <summary>the fault is in the return line</summary>"


def settings(*, context: int = 4096, **summary) -> EpisodeSettings:
    sampling = toy_sampling(max_turns=20, max_turn_tokens=1024, max_context_tokens=context)
    harness = toy_harness(summary=SummaryConfig(max_tokens=64, **summary))
    return EpisodeSettings(sampling, harness, RewardConfig())


async def run(task, client: ScriptedClient, services, settings: EpisodeSettings) -> Trajectory:
    return await run_episode(task=task, sample=0, session_id="s", seed=1, settings=settings, services=services(client))


def opening(task, renderer) -> int:
    """Tokens of the first prompt."""
    return len(renderer.start([{"role": "user", "content": task.instruction}]))


def looking(task) -> list:
    """Turns that fill a window: a plan, and every file read twice."""
    paths = sorted(task.environment.files)
    return [[call("todo_write", todos=PLAN)], *([call("read_file", path=path)] for path in paths * 2)]


async def test_a_full_window_is_summarized_in_place_and_the_next_one_goes_on(task, renderer, services):
    look = looking(task)
    client = ScriptedClient(renderer, [*look, SUMMARY, *solution(task)], versions=(3, 4))
    probe = ScriptedClient(renderer, [*look, [call("finish")]])
    whole = (await run(task, probe, services, settings())).segments[0]
    trigger = len(whole.tokens) - 20  # reached by the last file that is read
    made = await run(task, client, services, settings(trigger_tokens=trigger))

    assert made.verdict is Verdict.PASSED, made.report
    assert made.stop_reason is StopReason.FINISHED
    assert len(made.segments) == 2
    [summary] = [turn for turn in made.turns if turn.summary]
    assert (summary.index, summary.segment, summary.text) == (len(look), 0, SUMMARY)
    assert [turn.segment for turn in made.turns] == [0] * (len(look) + 1) + [1] * len(solution(task))

    # Asked in the same context: everything but the last results and the question was in the engine's cache.
    before, asked = client.requests[len(look) - 1], client.requests[len(look)]
    assert asked.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
    question = renderer.observe(made.turns[len(look) - 1].results, ask=prompt("summarize"))
    assert asked.prompt_ids[-len(question) :] == question
    assert asked.max_tokens == 64

    # The next window: task, summary without the thoughts, state of the harness.
    first = made.segments[1]
    text = renderer.tokenizer.decode(first.tokens[: first.loss_mask.index(1)])
    assert task.instruction in text
    assert "the fault is in the return line" in text and "I looked around" not in text
    assert "plan: [done] read; [pending] mend. 1 of 2 steps remain. Summaries so far: 1." in text
    content = made.messages[-1]["content"]
    assert renderer.start([{"role": "user", "content": content}], schemas_of(get_profile("toy"))) == [
        *client.requests[0].prompt_ids
    ]

    # One rollout: every token that was sampled, the summary's with its thoughts included, is trained on as one.
    assert sum(sum(segment.loss_mask) for segment in made.segments) == sum(
        turn.token_end - turn.token_start for turn in made.turns
    )
    assert len(client.requests) == len(made.turns)
    for turn in made.turns:
        segment = made.segments[turn.segment]
        assert set(segment.loss_mask[turn.token_start : turn.token_end]) == {1}
        assert set(segment.versions[turn.token_start : turn.token_end]) <= {3, 4}
    streams = group_streams([1.0, 0.0], [made.segments, trajectory().segments], toy_rl(group_size=2))
    assert len(streams) == 3
    for stream in streams[:2]:
        assert {a for a, m in zip(stream.advantages, stream.loss_mask, strict=True) if m} == {0.5}
    assert effort(made).turns == len(made.turns) - 1
    assert effort(made).thinking_tokens == summary.token_end - summary.token_start
    assert group_stats([made])["segments/mean"] == 2.0


async def test_summaries_are_made_again_and_again_up_to_the_most_windows(task, renderer, services):
    start = opening(task, renderer)
    look = [call("list_dir", path=".")]
    client = ScriptedClient(renderer, [look, "first", look, "second", look, [call("finish")]])
    made = await run(task, client, services, settings(trigger_tokens=start + 5, max_windows=3))
    assert [turn.summary for turn in made.turns] == [False, True, False, True, False, False]
    assert [turn.segment for turn in made.turns] == [0, 0, 1, 1, 2, 2]
    assert "Summaries so far: 2." in renderer.tokenizer.decode(made.segments[2].tokens)
    assert "second" in renderer.tokenizer.decode(made.segments[2].tokens)
    assert "first" not in renderer.tokenizer.decode(made.segments[2].tokens)


async def test_an_output_that_leaves_no_room_for_the_summary_is_left_out(task, renderer, services):
    start = opening(task, renderer)
    path = max(task.environment.files, key=lambda name: len(task.environment.files[name]))
    client = ScriptedClient(renderer, [[call("read_file", path=path)], "nothing yet", [call("finish")]])
    asked = len(renderer.observe([ToolResult(call_id="", output=LEFT_OUT)], ask=prompt("summarize")))
    written = len(renderer.turn([call("read_file", path=path)]))
    context = start + written + asked + 64
    made = await run(task, client, services, settings(context=context, trigger_tokens=start + written + 10))
    assert LEFT_OUT in renderer.tokenizer.decode(made.segments[0].tokens)
    assert len(made.segments[0].tokens) <= context
    assert made.stop_reason is StopReason.FINISHED
    smaller = settings(context=context - 1, trigger_tokens=start + written + 10)
    made = await run(task, ScriptedClient(renderer, [[call("read_file", path=path)]]), services, smaller)
    assert made.stop_reason is StopReason.TOKEN_LIMIT


async def test_truncation_keeps_the_last_turns_as_they_were(task, renderer, services):
    look = looking(task)
    client = ScriptedClient(renderer, [*look, *solution(task)])
    probe = await run(task, ScriptedClient(renderer, [*look, [call("finish")]]), services, settings())
    trigger = len(probe.segments[0].tokens) - 20
    made = await run(task, client, services, settings(trigger_tokens=trigger, mode="truncate"))
    assert made.verdict is Verdict.PASSED, made.report
    assert len(made.segments) == 2 and not any(turn.summary for turn in made.turns)
    first, second = made.segments
    head = len(client.requests[0].prompt_ids)
    assert second.tokens[:head] == first.tokens[:head]
    kept = second.tokens[head : second.loss_mask.index(1)]
    assert 0 < len(kept) <= trigger / 2
    assert first.tokens[-len(kept) :] == kept
    assert any(turn.token_start == len(first.tokens) - len(kept) for turn in made.turns)


async def test_without_a_trigger_nothing_changes(task, renderer, services):
    made = await run(task, ScriptedClient(renderer, [*looking(task), *solution(task)]), services, settings())
    assert len(made.segments) == 1 and {turn.segment for turn in made.turns} == {0}


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("<think>a <summary>no</summary></think>\nwell <summary> b </summary> c", "b"),
        ("thoughts <summary>one</summary> and <summary>two", "two"),
        ("no marks at all ", "no marks at all"),
        ("<think>only thoughts</think>", ""),
    ],
)
def test_the_summary_is_what_stands_between_the_marks(text, summary):
    assert read_summary(text) == summary


def test_the_state_counts_what_remains():
    plan = [Todo("a", "done"), Todo("b", "in_progress")]
    assert state(plan, 2) == "plan: [done] a; [in_progress] b. 1 of 2 steps remain. Summaries so far: 2."
    assert state([], 1) == "no plan. Summaries so far: 1."


def test_a_window_is_full_at_the_trigger_and_the_last_one_never():
    windows = Windows(SummaryConfig(trigger_tokens=10, max_windows=2), max_tokens=100)
    assert [windows.full(tokens) for tokens in (9, 10)] == [False, True]
    windows.made = 1
    assert not windows.full(1000)
    assert not Windows(SummaryConfig(), max_tokens=100).full(1000)


def test_last_turns_begin_with_a_turn_of_their_window():
    turns = [Turn(index=i, segment=i // 2, text="", token_start=s, token_end=s + 2) for i, s in enumerate((3, 6, 3, 8))]
    assert last_turns(list(range(10)), turns, 0, 7) == [3, 4, 5, 6, 7, 8, 9]
    assert last_turns(list(range(10)), turns, 0, 6) == [6, 7, 8, 9]
    assert last_turns(list(range(10)), turns, 1, 2) == [8, 9]
    assert last_turns(list(range(10)), turns, 1, 1) == []


def test_a_trigger_without_room_for_the_summary_is_refused():
    harness = toy_harness(summary=SummaryConfig(trigger_tokens=700, max_tokens=100))
    with pytest.raises(ValueError, match="max_context_tokens=768; lower the trigger"):
        toy_rl(harness=harness)
