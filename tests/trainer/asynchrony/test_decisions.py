"""Concurrency, breaker, reasons and checks: small decisions, each by its rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.asynchrony.breaker import tripped
from trainer.asynchrony.checks import EngineLied, GroupRefused, check_group, token_versions
from trainer.asynchrony.concurrency import EngineLoad, next_limit
from trainer.asynchrony.reasons import reason_of
from trainer.inference.contract import GenerateResponse, VersionSpan
from trainer.rollouts.types import TrainGroup, TrainSample

LIMITS = {"least": 4, "most": 32, "group_size": 8}


@given(st.integers(1, 64), st.integers(0, 500), st.integers(0, 500), st.integers(0, 256))
def test_the_limit_stays_between_a_step_and_the_most(current, running, waiting, slots):
    after = next_limit(current, EngineLoad(running, waiting, slots), **LIMITS)
    assert 4 <= after <= 32


def test_a_queue_lowers_the_limit_and_free_slots_raise_it():
    assert next_limit(16, EngineLoad(64, 16, 64), **LIMITS) == 15
    assert next_limit(16, EngineLoad(64, 500, 64), **LIMITS) == 12  # at most a quarter
    assert next_limit(16, EngineLoad(40, 0, 64), **LIMITS) == 18
    assert next_limit(16, EngineLoad(64, 0, 64), **LIMITS) == 16  # full and without a queue: just right
    assert next_limit(4, EngineLoad(1, 0, 0), **LIMITS) == 5  # an engine that names no slots


def test_the_limit_settles_where_the_engine_is_full():
    limit, seen = 32, []
    for _ in range(40):
        wanted = limit * 8
        limit = next_limit(limit, EngineLoad(min(wanted, 96), max(0, wanted - 96), 96), **LIMITS)
        seen.append(limit)
    assert min(seen[10:]) >= 10 and max(seen[10:]) <= 14


def test_the_breaker_trips_in_a_row_or_by_share():
    assert tripped([False] * 4, in_a_row=5) is None
    assert "last 5 groups" in str(tripped([False] * 5 + [True], in_a_row=5))
    assert tripped([True, *[False] * 4] * 1, in_a_row=5) is None
    assert "8 of the last 12" in str(tripped([True, False, False] * 4, in_a_row=5))
    assert tripped([False] * 50, in_a_row=0) is None


@pytest.mark.parametrize(
    ("cause", "word"),
    [
        ("dropped: 3 of 4 rollouts are in quarantine", "quarantine"),
        ("dropped after 3 attempts: the group did not end within 5 s", "deadline"),
        ("dropped after 3 attempts: reward part 'x' failed on task t: ValueError()", "reward"),
        ("dropped after 3 attempts: group 3: the engine names policy version 9", "versions"),
        ("cancelled: the run has ended", "ended"),
        ("dropped after 3 attempts: no answer within 3 s", "infrastructure"),
    ],
)
def test_causes_have_a_word(cause, word):
    assert reason_of(cause) == word


def response(*spans, tokens=4, logprobs=None):
    return GenerateResponse(
        token_ids=[7] * tokens,
        logprobs=[-0.5] * tokens if logprobs is None else logprobs,
        spans=[VersionSpan(version=v, start=a, end=b) for v, a, b in spans],
        finish_reason="stop",
    )


def test_every_token_has_its_version():
    assert token_versions(response((3, 0, 1), (5, 1, 4))) == [3, 5, 5, 5]
    assert token_versions(response(tokens=0)) == []


@pytest.mark.parametrize(
    "lie",
    [
        response((3, 0, 3)),  # a token of no version
        response((3, 0, 5)),  # more tokens than there are
        response((3, 0, 2), (3, 3, 4)),  # a gap
        response((3, 0, 3), (4, 2, 4)),  # an overlap
        response((4, 0, 2), (3, 2, 4)),  # weights that go back
        response((-1, 0, 4)),
        response((3, 0, 4), logprobs=[-0.5] * 3),
        response((3, 0, 4), logprobs=[-0.5, float("nan"), -0.5, -0.5]),
        response((3, 0, 4), logprobs=[-0.5, 0.5, -0.5, -0.5]),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused(lie):
    with pytest.raises(EngineLied, match="the engine"):
        token_versions(lie)


def group(**changes):
    sample = TrainSample(tokens=[1, 2], loss_mask=[0, 1], sampler_logprobs=[0.0, -0.5], advantages=[0.0, 1.0])
    values = {
        "group_id": "g",
        "prompt_index": 0,
        "dispatched_version": 1,
        "oldest_version": 1,
        "newest_version": 2,
        "rewards": [1.0, 0.0],
        "samples": [sample, sample],
    }
    return TrainGroup(**(values | changes))


def test_a_version_that_was_never_published_is_refused():
    check_group(group(), published=2)
    with pytest.raises(EngineLied, match="names policy version 2 and the newest that was published is 1"):
        check_group(group(), published=1)


def test_numbers_that_are_not_finite_are_refused():
    bad = TrainSample(tokens=[1, 2], loss_mask=[0, 1], sampler_logprobs=[0.0, float("nan")], advantages=[0.0, 1.0])
    with pytest.raises(GroupRefused, match="sample 1: sampler_logprobs holds NaN"):
        check_group(group(samples=[group().samples[0], bad]), published=2)
    with pytest.raises(GroupRefused, match="a reward is not finite"):
        check_group(group(rewards=[float("inf"), 0.0]), published=2)
