"""Rollouts as records of other projects' formats: nothing lost, and a long one leaves a step at a time."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
from pathlib import Path

import pytest

from composer_web.core.artifacts import ArtifactError, ArtifactStore, artifacts
from composer_web.core.errors import UserError
from composer_web.rollouts.exports import records
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.trajectory import trajectory_store
from sandbox.formats import atif
from sandbox.grading.verdict.report import Verdict
from tests.browser import episodes
from tests.support.blobs import blob_file
from trainer.types import Segment, Trajectory

KEY = "g/0.json.zst"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """The installation's store, in a folder of the test."""
    monkeypatch.setattr(artifacts(), "place", tmp_path)
    return artifacts()


def rollout(key: str = KEY) -> Rollout:
    group = Group(pk=3)
    return Rollout(pk=7, group=group, sample=2, artifact_key=key, verdict="failed", state="graded", newest_version=4)


def episode(rounds: int) -> Trajectory:
    return episodes.trajectory(
        episodes.task(3), sample=0, verdict=Verdict.FAILED, version=4, rounds=rounds, draw=random.Random(1)
    )


def windows(turns: int, each: int, characters: int) -> Trajectory:
    """Context windows of `each` turns: 2 tokens of the policy and 98 of others a turn."""
    whole = episode(1)
    call, result = whole.turns[0].calls[0], whole.turns[0].results[0]
    long = result.model_copy(update={"output": "x" * characters})
    made = tuple(
        whole.turns[0].model_copy(
            update={
                "index": i, "segment": i // each, "token_start": 100 * (i % each) + 98,
                "token_end": 100 * (i % each) + 100, "calls": (call,), "results": (long,),
            }
        )
        for i in range(turns)
    )  # fmt: skip
    size = 100 * each
    segments = tuple(
        Segment(tokens=[n * size + i for i in range(size)], logprobs=[-0.5] * size, loss_mask=[1] * size, versions=[4] * size)
        for n in range(turns // each)
    )  # fmt: skip
    return whole.model_copy(update={"turns": made, "segments": segments})


def test_the_document_is_the_one_that_is_written_at_once(store: ArtifactStore) -> None:
    trajectory_store.record(KEY, episode(3))
    found = json.loads("".join(records.as_atif(rollout())))
    whole, _ = atif.export(records.record_of(rollout()))
    assert found == whole
    assert "notes" not in found
    record, losses = atif.load(json.dumps(found))
    assert record == records.record_of(rollout())
    assert len(losses) == 0
    assert record.steps[1].prompt_token_ids[-1] == episode(3).segments[0].tokens[episode(3).turns[1].token_start - 1]


def test_many_prompts_are_written_once_a_window(store: ArtifactStore) -> None:
    """2,000 turns in two windows of 100,000 tokens: in full they would be 100 million ids."""
    long = windows(2_000, 1_000, 100)
    trajectory_store.record(KEY, long)
    text = "".join(records.as_atif(rollout()))
    assert len(text) < 10_000_000
    found = json.loads(text)
    assert "first prompt_tokens of them" in found["notes"]
    agent = [step for step in found["steps"] if step["source"] == "agent"]
    full = [place for place, step in enumerate(agent) if "prompt_token_ids" in step["metrics"]]
    assert full == [999, 1999]
    # What the note says is so: any prompt can be had from the last one of its window.
    place, segment = 1_500, long.segments[1]
    prompt = agent[1999]["metrics"]["prompt_token_ids"][: agent[place]["metrics"]["prompt_tokens"]]
    assert prompt == segment.tokens[: long.turns[place].token_start]
    assert found["final_metrics"] == {
        "total_prompt_tokens": sum(turn.token_start for turn in long.turns),
        "total_completion_tokens": 4_000,
        "total_steps": 2_001,
    }
    assert [step["step_id"] for step in found["steps"]] == list(range(1, 2_002))
    record, losses = atif.load(text)
    assert len(record.steps) == 2_000
    assert list(losses.found) == ["notes"]


def test_fifty_megabytes_leave_a_window_at_a_time(store: ArtifactStore) -> None:
    trajectory_store.record(KEY, windows(2_000, 1_000, 25_000))
    assert store.unpacked_bytes(KEY) > 50_000_000
    tracemalloc.start()
    try:
        pieces = records.as_atif(rollout())
        size = sum(len(piece) for piece in pieces)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 50_000_000
    assert peak < 40_000_000, f"{peak >> 20} MiB at the same time"


def test_the_first_step_is_there_before_the_last_is_read(store: ArtifactStore) -> None:
    trajectory_store.record(KEY, windows(400, 200, 5_000))
    pieces = records.as_atif(rollout())
    began = "".join(itertools.islice(pieces, 3))
    assert '"step_id": 2' in began
    blob_file("g/0.read/turns-19.json.zst").unlink()
    with pytest.raises(ArtifactError):
        list(pieces)


def test_what_was_lost_to_the_machine_is_refused_with_words(store: ArtifactStore) -> None:
    with pytest.raises(UserError, match="has no trajectory: it was lost"):
        records.as_atif(rollout(""))
