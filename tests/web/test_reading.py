"""Reading trajectories: windows of turns, search, where the ways of a group part, and the numbers of its tokens."""

from __future__ import annotations

import random

import pytest

from composer_web.rollouts import comparing, searching, transcript
from sandbox.grading.report import Verdict
from tests.browser import seed
from trainer.rollouts.types import Trajectory


def episode(*, rounds: int = 1, verdict: Verdict = Verdict.PASSED, hostile: bool = False) -> Trajectory:
    return seed.trajectory(
        seed.task(3), sample=0, verdict=verdict, version=4, hostile=hostile, rounds=rounds, draw=random.Random(1)
    )


@pytest.mark.parametrize(
    ("around", "first", "before", "after"),
    [(0, 0, None, 60), (59, 0, None, 60), (60, 60, 0, 120), (151, 120, 60, None), (9_999, 120, 60, None)],
)
def test_a_window_holds_the_turn_asked_for(around: int, first: int, before: int | None, after: int | None) -> None:
    window = transcript.window(episode(rounds=75), around)
    assert (window.first, window.before, window.after, window.total) == (first, before, after, 152)
    assert [turn.index for turn in window.turns] == list(range(first, window.end))


def test_no_turn_lies_between_windows() -> None:
    trajectory, place, seen = episode(rounds=75), 0, []
    while True:
        window = transcript.window(trajectory, place)
        seen += [turn.index for turn in window.turns]
        if window.after is None:
            break
        place = window.after
    assert seen == list(range(152))


def test_an_episode_without_turns_has_an_empty_window() -> None:
    empty = episode().model_copy(update={"turns": ()})
    window = transcript.window(empty, 5)
    assert (window.turns, window.before, window.after) == ([], None, None)


def test_search_finds_every_place_of_the_page() -> None:
    trajectory = episode(hostile=True)
    found = searching.search(trajectory, "<SCRIPT>Alert")
    assert {hit.where for hit in found.hits} == {"opening", "text", "output", "finish arguments", "patch"}
    assert found.total == len(found.hits)
    assert all(hit.match.lower() == "<script>alert" for hit in found.hits)
    assert [hit.turn for hit in found.hits if hit.turn is not None] == sorted(
        hit.turn for hit in found.hits if hit.turn is not None
    )
    assert searching.search(trajectory, "nowhere at all") == searching.Found([], 0, 0)
    assert searching.search(trajectory, "") == searching.Found([], 0, 0)


def test_search_counts_beyond_what_it_lists() -> None:
    found = searching.search(episode(rounds=150), "def scale")
    assert len(found.hits) == searching.MAX_HITS < found.total
    assert found.turns == 300


def test_ways_part_where_somebody_does_something_else() -> None:
    right, wrong, long = episode(), episode(verdict=Verdict.FAILED), episode(rounds=3)
    ways = comparing.ways([right, right, wrong, None, long])
    letters = ["".join(cell.branch if cell else "-" for cell in row) for row in ways.rows]
    assert letters == ["AAA-A", "AAA-A", "AAB-C", "AAB-C"]
    assert ways.parting == 2
    assert [cell.parts for cell in ways.rows[2] if cell] == [True] * 4
    assert not any(cell.parts for cell in ways.rows[3] if cell)
    assert ways.cut == 4  # the long one goes on alone


def test_stopping_earlier_is_a_way_of_its_own() -> None:
    whole = episode()
    short = whole.model_copy(update={"turns": whole.turns[:2]})
    assert comparing.ways([whole, short]).parting is None  # nobody is beside the longer one any more
    assert comparing.ways([whole, whole, short]).parting == 2
    assert comparing.ways([whole, whole]).parting is None
    assert comparing.ways([]).rows == []
