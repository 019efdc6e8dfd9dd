"""Choices on the wire: compact, exact, and refused when they cannot be what they say."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trainer.inference.contract import GenerateResponse, InferenceError, VersionSpan
from trainer.rollouts.choices import Choices
from trainer.routed_experts import MAX_BYTES, UNKNOWN, ReplayRefused, RoutedExperts, SamplingMasks, joined, merge
from trainer.types import Segment


def experts(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 384, (rows, 2, 3)).astype(np.uint16)


def frame(data: bytes) -> str:
    return base64.b64encode(zstandard.compress(data)).decode()


def test_experts_come_back_through_json_in_less_room_than_numbers() -> None:
    array = experts(200)
    packed = RoutedExperts.pack(array, start=7)
    text = packed.model_dump_json()
    again = RoutedExperts.model_validate_json(text)
    assert (again.start, again.stop) == (7, 207) and (again.unpack() == array).all()
    assert len(text) < len(str(array.tolist())) / 2


@given(st.lists(st.lists(st.integers(0, 1 << 31), max_size=5), max_size=8))
def test_supports_come_back(ids: list[list[int]]) -> None:
    assert SamplingMasks.pack(ids).unpack() == ids


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rows": 5}, "hold 48 bytes where 60 belong"),
        ({"rows": MAX_BYTES}, "are the most"),
        ({"data": "%%%"}, "do not unpack"),
        ({"data": base64.b64encode(b"no frame").decode()}, "bytes where 48 belong|do not unpack"),
        ({"data": frame(b"x" * 47)}, "hold 47 bytes"),
    ],
)
def test_records_that_do_not_hold_what_they_promise_are_refused(change: dict, problem: str) -> None:
    packed = RoutedExperts.pack(experts(4))
    with pytest.raises(ReplayRefused, match=problem):
        packed.model_copy(update=change).unpack()


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_of_the_promised_size(data: bytes) -> None:
    for text in (base64.b64encode(data).decode(), frame(data)):
        support = SamplingMasks(tokens=3, open=2, counts=text, ids=text)
        try:
            assert sum(map(len, support.unpack())) == 2
        except ReplayRefused:
            pass


def test_records_of_turns_are_joined_and_what_is_missing_is_unknown() -> None:
    first, second = experts(4, seed=1), experts(5, seed=2)
    whole = merge([RoutedExperts.pack(first), RoutedExperts.pack(second, start=6)], length=12)
    assert whole is not None and whole.rows == 11
    array = whole.unpack()
    assert (array[:4] == first).all() and (array[4:6] == UNKNOWN).all() and (array[6:] == second).all()
    assert merge([], 12) is None
    with pytest.raises(ReplayRefused, match="reach position 11 of a sequence of 11 tokens"):
        merge([RoutedExperts.pack(second, start=6)], length=11)
    with pytest.raises(ReplayRefused, match="2 layers with 2 each, then from 2 with 3"):
        merge([RoutedExperts.pack(first), RoutedExperts.pack(second[..., :2], start=4)], length=12)


def answer(tokens: int, record: RoutedExperts | None, support: SamplingMasks | None = None) -> GenerateResponse:
    return GenerateResponse(
        token_ids=[9] * tokens,
        logprobs=[-1.0] * tokens,
        spans=[VersionSpan(version=0, start=0, end=tokens)],
        finish_reason="stop",
        experts=record,
        support=support,
    )


def test_a_window_keeps_the_choices_of_its_turns_and_goes_on_from_them() -> None:
    choices = Choices()
    choices.read(5)
    choices.wrote(answer(3, RoutedExperts.pack(experts(7))), before=5)
    choices.read(4)
    assert choices.experts_known == 7
    support = SamplingMasks.pack([[9, 4], [9], [1, 9]])
    choices.wrote(answer(3, RoutedExperts.pack(experts(7, seed=1), start=7), support), before=12)
    routed = choices.routed()
    assert routed is not None and (routed.start, routed.stop) == (0, 14)
    assert choices.support() is not None
    segment = Segment(
        tokens=[9] * 15,
        logprobs=[0.0] * 15,
        loss_mask=[0] * 15,
        versions=[-1] * 15,
        experts=routed,
        support=choices.support(),
    )
    again = Choices.of(Segment.model_validate_json(segment.model_dump_json()))
    assert again.open_ids == [[]] * 12 + [[9, 4], [9], [1, 9]] and again.experts_known == 14


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (answer(3, RoutedExperts.pack(experts(6))), "experts of positions 0 to 6, 0 to 7 were asked for"),
        (answer(3, RoutedExperts.pack(experts(7), start=1)), "experts of positions 1 to 8, 0 to 7 were asked for"),
        (answer(3, RoutedExperts.pack(experts(7)).model_copy(update={"data": "x"})), "cannot be repeated"),
        (answer(3, None, SamplingMasks.pack([[9], [9]])), "leaves out"),
        (answer(3, None, SamplingMasks.pack([[9], [8], [9]])), "leaves out"),
    ],
)
def test_an_engine_that_answers_other_choices_than_asked_is_found_out(response: GenerateResponse, problem: str) -> None:
    choices = Choices()
    choices.read(5)
    with pytest.raises(InferenceError, match=problem):
        choices.wrote(response, before=5)
    assert choices.experts_known == 0 and len(choices.open_ids) == 5


def test_parts_that_follow_one_another_are_one_and_may_be_cut() -> None:
    whole = experts(9)
    parts = [RoutedExperts.pack(whole[:4]), RoutedExperts.pack(whole[4:9], start=4)]
    one = joined(parts, 9)
    assert one is not None and one.start == 0 and np.array_equal(one.unpack(), whole)
    cut = joined(parts[1:], 6)
    assert cut is not None and (cut.start, cut.stop) == (4, 6) and np.array_equal(cut.unpack(), whole[4:6])
    assert joined([], 5) is None
    assert parts[1].until(3).rows == 0
    with pytest.raises(ReplayRefused, match="do not follow one another"):
        joined(parts[::-1], 9)
