"""Reading trajectories: windows of turns, search, where the ways of a group part, and the numbers of its tokens."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from composer_web.core.artifacts import ArtifactError, ArtifactStore, artifacts
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.search import searching
from composer_web.rollouts.trajectory import comparing, trajectory_store, transcript, turn_filters
from composer_web.rollouts.trajectory.overview import overview
from composer_web.rollouts.worker import standalone
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.types import ToolCall, ToolResult
from tests.browser import episodes
from tests.support.blobs import artifact_folder, blob_file
from trainer.types import Trajectory, Turn


def episode(*, rounds: int = 1, verdict: Verdict = Verdict.PASSED, hostile: bool = False) -> Trajectory:
    return episodes.trajectory(
        episodes.task(3), sample=0, verdict=verdict, version=4, hostile=hostile, rounds=rounds, draw=random.Random(1)
    )


def window_of(trajectory: Trajectory, around: int) -> transcript.Window:
    """A window of all turns."""
    return transcript.window_of(trajectory_store.in_memory(trajectory), range(len(trajectory.turns)), around)


@pytest.mark.parametrize(
    ("around", "first", "before", "after"),
    [(0, 0, None, 20), (19, 0, None, 20), (20, 20, 0, 40), (151, 140, 120, None), (9_999, 140, 120, None)],
)
def test_a_window_holds_the_turn_asked_for(around: int, first: int, before: int | None, after: int | None) -> None:
    window = window_of(episode(rounds=75), around)
    assert (window.first, window.before, window.after, window.total) == (first, before, after, 152)
    assert [turn.index for turn in window.turns] == list(range(first, window.end))


def test_no_turn_lies_between_windows() -> None:
    trajectory, place, seen = episode(rounds=75), 0, []
    while True:
        window = window_of(trajectory, place)
        seen += [turn.index for turn in window.turns]
        if window.after is None:
            break
        place = window.after
    assert seen == list(range(152))


def test_an_episode_without_turns_has_an_empty_window() -> None:
    empty = episode().model_copy(update={"turns": ()})
    window = window_of(empty, 5)
    assert (window.turns, window.before, window.after) == ([], None, None)


def test_search_finds_every_place_of_the_page() -> None:
    trajectory = episode(hostile=True)
    found = searching.search(trajectory_store.in_memory(trajectory), "<SCRIPT>Alert")
    assert {hit.where for hit in found.hits} == {"opening", "text", "output", "finish arguments", "patch"}
    assert found.total == len(found.hits)
    assert all(hit.match.lower() == "<script>alert" for hit in found.hits)
    assert [hit.turn for hit in found.hits if hit.turn is not None] == sorted(
        hit.turn for hit in found.hits if hit.turn is not None
    )
    assert searching.search(trajectory_store.in_memory(trajectory), "nowhere at all") == searching.SearchResult(
        [], 0, 0
    )
    assert searching.search(trajectory_store.in_memory(trajectory), "") == searching.SearchResult([], 0, 0)


def test_search_counts_beyond_what_it_lists() -> None:
    found = searching.search(trajectory_store.in_memory(episode(rounds=150)), "def scale")
    assert len(found.hits) == searching.MAX_HITS < found.total
    assert found.turns == 300


def ways_of(*trajectories: Trajectory | None) -> comparing.Ways:
    return comparing.ways([trajectory_store.in_memory(one) if one else None for one in trajectories])


def test_ways_part_where_somebody_does_something_else() -> None:
    right, wrong, long = episode(), episode(verdict=Verdict.FAILED), episode(rounds=3)
    ways = ways_of(right, right, wrong, None, long)
    letters = ["".join(cell.branch if cell else "-" for cell in row) for row in ways.rows]
    assert letters == ["AAA-A", "AAA-A", "AAB-C", "AAB-C"]
    assert ways.parting == 2
    assert [cell.parts for cell in ways.rows[2] if cell] == [True] * 4
    assert not any(cell.parts for cell in ways.rows[3] if cell)
    assert ways.cut == 4  # the long one goes on alone


def test_stopping_earlier_is_a_way_of_its_own() -> None:
    whole = episode()
    short = whole.model_copy(update={"turns": whole.turns[:2]})
    assert ways_of(whole, short).parting is None  # nobody is beside the longer one any more
    assert ways_of(whole, whole, short).parting == 2
    assert ways_of(whole, whole).parting is None
    assert comparing.ways([]).rows == []


def heavy(turns: int, characters: int) -> Trajectory:
    """Many turns with long outputs."""
    call = ToolCall(id="c", name="terminal", arguments={"command": "cat big"})
    made = tuple(
        Turn(
            index=i,
            text=f"turn {i}",
            token_start=0,
            token_end=0,
            calls=(call,),
            results=(ToolResult(call_id="c", output=f"{i} " + "x" * characters, seconds=0.1),),
        )
        for i in range(turns)
    )
    return episode().model_copy(update={"turns": made})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """The installation's store, in a folder of the test."""
    monkeypatch.setattr(artifacts(), "place", tmp_path)
    return artifacts()


def rollout(key: str = "g/0.json.zst", **values: object) -> Rollout:
    return Rollout(pk=7, group_id=3, sample=2, artifact_key=key, **{"verdict": "failed", "state": "graded", **values})


def test_a_small_trajectory_is_read_whole_and_a_large_one_by_windows(store: ArtifactStore) -> None:
    small, large = episode(rounds=30), heavy(300, 5_000)
    trajectory_store.record("g/0.json.zst", small)
    assert not store.exists("g/0.read/head.json.zst")
    assert trajectory_store.of(rollout()).turns([3, 60]) == [small.turns[3], small.turns[60]]
    trajectory_store.record("g/1.json.zst", large)
    read = trajectory_store.of(rollout("g/1.json.zst"))
    assert (read.whole, read.total, read.head.missing) == (None, 300, 0)
    assert read.turns([0, 299, 21, 20]) == [large.turns[i] for i in (0, 299, 21, 20)]
    assert [turn.index for turn in read.each()] == list(range(300))
    assert read.segment(0) == large.segments[0]
    blob_file("g/1.json.zst").unlink()  # the pages need the copy alone
    assert searching.search(trajectory_store.of(rollout("g/1.json.zst")), "299 xxx").total == 1


def test_a_copy_is_made_at_the_first_look_where_there_is_none(store: ArtifactStore) -> None:
    large = heavy(200, 5_000)
    store.put_model("g/0.json.zst", large)
    assert trajectory_store.of(rollout()).turns([150]) == [large.turns[150]]
    assert trajectory_store.of(rollout()).whole is None
    assert store.exists("g/0.read/turns-9.json.zst")


def test_what_a_copy_leaves_out_is_counted(store: ArtifactStore) -> None:
    hostile = heavy(30, 3_000_000)
    hostile = hostile.model_copy(
        update={"patch": "+" * 30_000_000, "messages": ({"role": "user", "content": "y" * 10**7},)}
    )
    trajectory_store.record("g/0.json.zst", hostile)
    read = trajectory_store.of(rollout())
    for number in (0, 1):
        assert store.unpacked_bytes(f"g/0.read/turns-{number}.json.zst") <= trajectory_store.MAX_WINDOW
    assert store.unpacked_bytes("g/0.read/head.json.zst") < 2 * trajectory_store.MAX_HEAD
    shown = sum(len(turn.results[0].output) for turn in read.each())
    whole = sum(len(turn.results[0].output) for turn in hostile.turns)
    assert read.head.missing > whole - shown > 80_000_000
    assert "not on this page" in transcript.notices(read.head.facts, missing=read.head.missing)[0]
    assert "characters are not in the copy for reading" in read.turns([4])[0].results[0].output
    assert len(b"".join(store.stream("g/0.json.zst"))) > 120_000_000


def test_more_calls_than_a_copy_holds_are_counted_too(store: ArtifactStore) -> None:
    large = heavy(200, 5_000)
    calls = tuple(large.turns[0].calls[0] for _ in range(trajectory_store.MAX_CALLS + 3))
    large = large.model_copy(update={"turns": (large.turns[0].model_copy(update={"calls": calls}), *large.turns[1:])})
    trajectory_store.record("g/0.json.zst", large)
    assert trajectory_store.of(rollout()).head.missing == 3 * len(calls[0].model_dump_json())


def test_json_lines_hold_everything_and_a_window_at_a_time(store: ArtifactStore) -> None:
    """Beside the same trajectory with a patch of which the copy holds a part: there the blob is parsed whole."""
    large = heavy(600, 20_000)
    segments = tuple(large.segments[0].model_copy(update={"versions": [n]}) for n in range(3))
    large = large.model_copy(update={"segments": segments})
    cut = large.model_copy(update={"patch": "+" * 3_000_000})
    for key, trajectory in (("g/0.json.zst", large), ("g/1.json.zst", cut)):
        trajectory_store.record(key, trajectory)
        whole = trajectory.model_dump(mode="json")
        made = [json.loads(line) for line in standalone.lines(rollout(key))]
        assert [line.pop("type") for line in made] == ["trajectory", *["turn"] * 600, *["segment"] * 3]
        assert made[1:601] == whole.pop("turns")
        assert made[601:] == [{"index": n, **segment} for n, segment in enumerate(whole.pop("segments"))]
        assert made[0] == whole

    def peak(key: str) -> int:
        """Bytes of Python objects at the same time."""
        tracemalloc.start()
        try:
            for _ in standalone.lines(rollout(key)):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak("g/0.json.zst") < peak("g/1.json.zst") / 4


def test_a_gigabyte_is_refused_with_words_and_streamed(store: ArtifactStore) -> None:
    size = 1 << 30
    (artifact_folder() / "g").mkdir()
    with blob_file("g/0.json.zst").open("wb") as file:
        writer = zstandard.ZstdCompressor(level=1).stream_writer(file, size=size)
        for _ in range(size >> 20):
            writer.write(b"a" * (1 << 20))
        writer.close()
    with pytest.raises(ArtifactError, match="unpacks to more than"):
        trajectory_store.of(rollout())
    pieces = store.stream("g/0.json.zst")
    assert 0 < len(next(pieces)) <= 1 << 20


def test_a_rollout_that_runs_is_read_as_it_grows(store: ArtifactStore) -> None:
    running, whole = rollout("", verdict="", state="running"), heavy(50, 100)
    with pytest.raises(trajectory_store.NotFound):
        trajectory_store.of(running)
    copy = trajectory_store.Growing(trajectory_store.live_prefix(3, 2))
    for turns in (1, 19, 45, 50):
        copy.grow(whole.messages, whole.turns[:turns])
        read = trajectory_store.of(running)
        assert (read.total, read.head.trajectory) == (turns, None)
        assert list(read.each()) == list(whole.turns[:turns])
    copy.grow(whole.messages, whole.turns[:2])  # the attempt was lost and begins again
    assert trajectory_store.of(running).total == 2
    with pytest.raises(trajectory_store.NotFound):
        trajectory_store.of(rollout("", verdict="infra_error", state="lost"))


def test_chips_leave_the_turns_that_one_of_them_names() -> None:
    head = trajectory_store.in_memory(episode(rounds=2, verdict=Verdict.FAILED)).head
    names = {chip.name: chip.turns for chip in turn_filters.chips(head, (), {1})}
    assert names == {
        "errors": 1, "findings": 1, "tool:grep": 2, "tool:read_file": 2, "tool:edit_file": 1, "tool:finish": 1,
    }  # fmt: skip
    assert list(turn_filters.places(head, {"errors"}, {1})) == [4]
    assert list(turn_filters.places(head, {"findings", "tool:finish"}, {1})) == [1, 5]
    assert list(turn_filters.places(head, (), ())) == list(range(6))
    assert turn_filters.places(head, turn_filters.wanted("nonsense,"), ()) == []
    off = [chip.name for chip in turn_filters.chips(head, {"summaries"}, ()) if chip.on]
    assert off == ["summaries"]  # what is on can be switched off, though it leaves nothing


def test_the_overview_is_made_of_the_facts_alone() -> None:
    facts = trajectory_store.in_memory(episode(rounds=2, verdict=Verdict.FAILED)).head.facts
    whole = overview(facts, {1})
    assert whole["tools"] == ["grep", "read_file", "edit_file", "finish"]
    assert whole["used"] == [[0], [1], [0], [1], [2], [3]]
    assert whole["flags"] == [0, 2, 0, 0, 1, 0]
    rest = overview(facts, {1}, 4)
    assert (rest["since"], rest["tools"], rest["used"]) == (4, whole["tools"], [[2], [3]])
    later = trajectory_store.TurnFacts(segment=1, summary=True, failed=True)
    assert overview([later], {0})["flags"] == [7]
    assert overview([], ()) == {"since": 0, "tools": [], "used": [], "flags": [], "segments": [], "colours": []}


def test_the_overview_of_two_thousand_turns_is_small() -> None:
    facts = [trajectory_store.TurnFacts(tools=("terminal",), segment=i // 500, tokens=90) for i in range(2000)]
    assert len(json.dumps(overview(facts, {5, 9}))) < 30_000
    many = [trajectory_store.TurnFacts(tools=tuple(f"made-up-{i}-{k}" for k in range(500))) for i in range(2000)]
    made = overview(many, ())
    assert len(made["tools"]) == 201
    assert made["used"][1999] == [200] * 12
    assert len(json.dumps(made)) < 200_000


def test_context_windows_are_a_chain_of_summaries() -> None:
    turns = [Turn(index=i, text="", token_start=0, token_end=3, segment=i // 2, summary=i in (1, 3)) for i in range(5)]
    head = trajectory_store.in_memory(episode().model_copy(update={"turns": tuple(turns)})).head
    chain = [(one.index, one.first, one.last, one.summary) for one in turn_filters.windows(head)]
    assert chain == [(0, 0, 1, 1), (1, 2, 3, 3), (2, 4, 4, None)]
    assert turn_filters.windows(trajectory_store.in_memory(episode()).head) == []


def test_a_turn_that_is_cut_can_be_seen_whole() -> None:
    turn = heavy(1, 50_000).turns[0]
    short, whole = transcript.view(turn), transcript.view(turn, whole=True)
    assert (short.short, whole.short) == (True, False)
    assert len(short.calls[0].output) < 7_000 < len(whole.calls[0].output) == len(turn.results[0].output)
    many = turn.model_copy(update={"calls": turn.calls * 250})
    assert transcript.view(many).calls_cut == 150
