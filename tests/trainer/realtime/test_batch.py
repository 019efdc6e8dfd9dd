"""From recorded turns to what the learner takes: chains of tokens, baselines, staleness, negatives that stay, guards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sandbox.harness.types import ToolCall
from trainer.config import Guards, SessionsConfig
from trainer.realtime.batch import Freshness, SessionRecord, build
from trainer.realtime.guards import CanaryGuards, Rates, broken
from trainer.realtime.reading import TurnFacts, facts_of
from trainer.realtime.sessions import RecordedTurn, sequences
from trainer.realtime.signals import Signal, SignalReward
from trainer.routed_experts import RoutedExperts

FRESH = Freshness(start=5, max_off_policy_steps=1, temperature=1.0)
REWARD = SignalReward()
BROKEN = TurnFacts(malformed="the tool call is not complete JSON")


def turn(index: int, *, base: int | None = None, version: int = 5, **fields: Any) -> RecordedTurn:
    return RecordedTurn(
        index=index, base=base, prompt_ids=[10 + index, 20 + index], token_ids=[30 + index], logprobs=[-0.5],
        loss_mask=[1], versions=[version], **fields,
    )  # fmt: skip


def record(name: str, *turns: RecordedTurn, signals: tuple[Signal, ...] = ()) -> SessionRecord:
    return SessionRecord(name, int(name), turns, signals)


def test_turns_that_go_on_from_each_other_are_one_sequence() -> None:
    (one,) = sequences([turn(0), turn(1, base=0), turn(2, base=1)])
    assert one.tokens == [10, 20, 30, 11, 21, 31, 12, 22, 32] and one.turns == [-1, -1, 0, -1, -1, 1, -1, -1, 2]
    assert one.versions == [-1, -1, 5] * 3 and one.logprobs == [0.0, 0.0, -0.5] * 3
    rewritten = sequences([turn(0), turn(1), turn(2, base=1)])
    assert [stream.tokens[0] for stream in rewritten] == [10, 11]
    first, other = sequences([turn(0), turn(1, base=0), turn(2, base=0)])
    assert (sum(first.loss_mask), sum(other.loss_mask)) == (2, 1), "what both begin with is trained once"
    assert sequences([turn(1, base=0), turn(2, base=1)]) == [], "a chain whose beginning is gone has no known context"
    with pytest.raises(ValueError, match="comes later"):
        turn(1, base=1)
    with pytest.raises(ValueError, match="differ in length"):
        RecordedTurn(index=0, token_ids=[1], logprobs=[], loss_mask=[1], versions=[0])


def experts(start: int, rows: int) -> RoutedExperts:
    """Each row holds its position."""
    return RoutedExperts.pack(np.arange(start, start + rows, dtype=np.uint16).reshape(rows, 1, 1), start=start)


def test_experts_of_turns_that_go_on_are_one_record() -> None:
    whole = [
        turn(0, experts=experts(0, 2)),
        turn(1, base=0, experts=experts(2, 3)),
        turn(2, base=1, experts=experts(5, 3)),
    ]
    (group,) = build([record("0", *whole, signals=(Signal(kind="accept", turn=0),))], REWARD, FRESH, step=1).groups
    (sample,) = group.samples
    assert sample.experts is not None and sample.experts.unpack().ravel().tolist() == list(range(8))
    again = [
        turn(0),
        turn(1, base=0, experts=experts(0, 5)),
    ]  # what was not recorded before is there from its beginning
    (stream,) = sequences(again)
    assert [part.start for part in stream.experts] == [0]
    (dense,) = build([record("0", turn(0), signals=(Signal(kind="accept", turn=0),))], REWARD, FRESH, step=1).groups
    assert dense.samples[0].experts is None


def test_advantages_are_over_the_batch_and_by_turn() -> None:
    accept, reject = Signal(kind="accept", turn=0), Signal(kind="reject", turn=0)
    made = build(
        [
            record("0", turn(0), turn(1, base=0), signals=(accept,)),
            record("1", turn(0), signals=(reject,)),
            record("2", turn(0, facts=BROKEN)),
            record("3", turn(0)),
        ],
        REWARD, FRESH, step=1,
    )  # fmt: skip
    assert [group.group_id for group in made.groups] == ["0", "1", "2"] and made.left_out == {"no signal": 1}
    baseline = (1.0 - 1.0 - 1.0) / 3
    good, bad, negative = (group.samples[0] for group in made.groups)
    assert good.advantages == pytest.approx([0, 0, 1 - baseline, 0, 0, 0]), "nobody spoke of the second turn"
    assert bad.advantages[2] == pytest.approx(-1 - baseline)
    assert negative.advantages[2] == pytest.approx(-1 - baseline), "a broken call is a negative without any signal"
    assert made.metrics["sessions/malformed_rate"] == 1 / 4 and made.groups[0].oldest_version == 0


@pytest.mark.parametrize(
    ("fields", "step", "why"),
    [
        ({"version": 4}, 1, ""),
        ({"version": 3}, 1, "stale"),
        ({"version": 4}, 2, "stale"),
        ({"version": 6}, 1, "newer than the start"),
        ({"temperature": 0.7}, 1, "sampled otherwise"),
        ({"top_p": 0.9}, 1, "sampled otherwise"),
        ({"redacted_tokens": 1}, 1, "redacted"),
    ],
)
def test_what_is_too_far_away_is_left_out_and_counted(fields: dict[str, Any], step: int, why: str) -> None:
    accepted = record("0", turn(0, **fields), signals=(Signal(kind="accept"),))
    made = build([accepted], REWARD, FRESH, step=step)
    assert dict(made.left_out) == ({why: 1} if why else {}) and len(made.groups) == (not why)


def test_what_a_turn_did() -> None:
    tools = [{"function": {"name": "edit_file", "parameters": {"required": ["path"]}}}]

    def facts(text: str = "", name: str = "", error: str | None = None, **arguments: str) -> TurnFacts:
        calls = [ToolCall(id="1", name=name, arguments=arguments)] if name else []
        return facts_of(text=text, calls=calls, error=error, tools=tools)

    assert facts(name="edit_file", path="a") == TurnFacts(calls=1, edits=1)
    assert facts(name="edit_file").malformed == "edit_file lacks path" and facts(name="edit_file").edits == 0
    assert facts(name="nothing").malformed == "there is no tool 'nothing'"
    assert facts("Which file?\n").question and facts("I see.\n**Which one?**").question
    assert not facts("Why? Because it is so.").question
    assert facts("What?", error="not JSON") == TurnFacts(malformed="not JSON")


def test_signals_have_bounds_and_latency_its_own_unit() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Signal(kind="accept", value=2)
    reward = SignalReward(latency=-0.1, latency_free=10)
    (parts,) = reward.parts([TurnFacts()], [Signal(kind="latency", value=25.0)])
    assert [(part.value, part.weight) for part in parts] == [(15.0, -0.1)]
    assert reward.parts([TurnFacts()], [Signal(kind="latency", value=5.0)]) == [[]]


def test_guards_say_what_moved_and_need_enough_turns() -> None:
    guards = Guards()
    before, worse = Rates(200, 0.7, 0.1, 0.01), Rates(200, 0.4, 0.4, 0.02)
    said = broken(guards, before, worse)
    assert len(said) == 2 and "turns that edit fell from 70.0% to 40.0%; 15% are allowed" in said[0]
    assert broken(guards, before, Rates(200, 0.65, 0.15, 0.03)) == []
    assert broken(guards, before, Rates(20, 0.0, 1.0, 1.0)) == []
    assert broken(guards, Rates(60, 0.5, 0, 0), Rates(60, 0.34, 0, 0)) == [], "beyond the bound, but not beyond chance"


def test_the_bounds_of_a_run_and_of_a_canary_are_one_description() -> None:
    kept = {"edit_drop": 0.3, "question_rise": 0.2, "malformed_rise": 0.1, "min_turns": 7}
    run = SessionsConfig.model_validate({"channel": "production", **kept})  # as runs were stored before
    both = (run, CanaryGuards.model_validate({**kept, "bad_rise": 0.2}))
    assert [one.model_dump(include=set(Guards.model_fields)) for one in both] == [{**kept, "z_score": 2.0}] * 2
    assert all(issubclass(type(one), Guards) and not set(type(one).__annotations__) & set(kept) for one in both)
    before, now = Rates(7, 1.0, 0.0, 0.0), Rates(7, 0.0, 1.0, 0.0)
    assert broken(run, before, now) == broken(both[1], before, now) != []
