"""Windowed first-in-first-out as properties: whatever order groups finish in."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trainer.orchestrator.batch_scheduler import BufferEntry, schedule_batch


@st.composite
def settings(draw):
    per_step = draw(st.integers(1, 5))
    return per_step, draw(st.integers(per_step, per_step + 12))


@given(settings(), st.integers(1, 6), st.randoms(use_true_random=False))
def test_no_group_starves_and_none_is_trained_twice(numbers, steps, random):
    """Groups finish in any order, one prompt never before it is the only one left that the window can give."""
    per_step, window = numbers
    count = steps * per_step + window
    slow = random.randrange(count)
    state = dict.fromkeys(range(count), "open")
    order = [prompt for prompt in range(count) if prompt != slow]
    random.shuffle(order)
    trained: dict[int, int] = {}
    step = 1
    while order or state[slow] == "open":
        if order:
            state[order.pop()] = "accepted"
        else:
            state[slow] = "accepted"
        while True:
            entries = [BufferEntry(prompt, state[prompt], 0) for prompt in range(count)]
            choice = schedule_batch(entries, step=step, groups_per_step=per_step, window=window, staleness_limit=10**6)
            if choice.batch is None:
                break
            assert len(choice.batch) == per_step
            assert list(choice.batch) == sorted(choice.batch)
            for prompt in choice.batch:
                assert state[prompt] == "accepted"
                state[prompt] = "consumed"
                trained[prompt] = step
            step += 1
    # What is left over is less than a step, and nothing of it was open.
    assert list(trained.values()).count(0) == 0
    assert count - len(trained) < per_step
    place = {prompt: trained.get(prompt, step) for prompt in range(count)}
    for prompt in range(count):
        overtaken_by = sum(place[later] < place[prompt] for later in range(prompt + 1, count))
        assert overtaken_by < window
        assert place[prompt] <= math.ceil((prompt + window) / per_step)


@given(settings())
def test_strict_order_when_the_window_is_one_step_of_one(numbers):
    per_step, _ = numbers
    entries = [BufferEntry(0, "open", 0), *(BufferEntry(prompt, "accepted", 0) for prompt in range(1, 20))]
    choice = schedule_batch(entries, step=1, groups_per_step=per_step, window=1, staleness_limit=9)
    assert choice.batch is None
    assert choice.waits_for == (0,)


def test_a_finished_group_may_overtake_inside_the_window_only():
    entries = [
        BufferEntry(0, "open", 0),
        BufferEntry(1, "accepted", 0),
        BufferEntry(2, "open", 0),
        BufferEntry(3, "accepted", 0),
    ]
    narrow = schedule_batch(entries, step=1, groups_per_step=2, window=3, staleness_limit=9)
    wide = schedule_batch(entries, step=1, groups_per_step=2, window=4, staleness_limit=9)
    assert (narrow.batch, narrow.waits_for) == (None, (0,))
    assert wide.batch == (1, 3)


def test_the_window_moves_on_with_what_the_step_takes():
    """The oldest is finished at last: it does not hold back those behind the old window."""
    entries = [
        BufferEntry(0, "accepted", 0),
        BufferEntry(1, "consumed", 0),
        BufferEntry(2, "consumed", 0),
        BufferEntry(3, "accepted", 0),
    ]
    assert schedule_batch(entries, step=2, groups_per_step=2, window=2, staleness_limit=9).batch == (0, 3)


def test_a_group_that_would_become_too_stale_is_waited_for():
    entries = [BufferEntry(0, "accepted", 1), BufferEntry(1, "open", 1), BufferEntry(2, "accepted", 1)]
    assert schedule_batch(entries, step=3, groups_per_step=2, window=5, staleness_limit=2).batch == (0, 2)
    late = schedule_batch(entries, step=4, groups_per_step=2, window=5, staleness_limit=2)
    assert (late.batch, late.waits_for) == (None, (1,))


def test_a_finished_group_with_tokens_that_are_too_old_is_in_no_batch():
    entries = [BufferEntry(0, "accepted", 0), BufferEntry(1, "accepted", 8), BufferEntry(2, "accepted", 9)]
    choice = schedule_batch(entries, step=10, groups_per_step=2, window=5, staleness_limit=1)
    assert (choice.batch, choice.stale) == ((1, 2), (0,))
    short = schedule_batch(entries[:2], step=10, groups_per_step=2, window=5, staleness_limit=1)
    assert (short.batch, short.stale) == (None, (0,))


def test_a_finished_group_whose_last_chance_this_is_comes_before_others():
    entries = [BufferEntry(0, "accepted", 9), BufferEntry(1, "accepted", 9), BufferEntry(2, "accepted", 8)]
    assert schedule_batch(entries, step=10, groups_per_step=2, window=5, staleness_limit=1).batch == (0, 2)
