"""Expert episodes: token streams, cache file, recording, replay."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.procedural import generate
from tests.trainer.toy_tokenizer import fresh_tokenizer
from trainer.learning.supervised import Example, batches
from trainer.policy import ChatRenderer, make_renderer
from trainer.sft.expert_episodes import (
    EpisodeTurn,
    ExpertEpisode,
    read_episodes,
    sft_examples,
    tokenize_episode,
    with_replay,
    write_episodes,
)
from trainer.sft.recording import Recording


@pytest.fixture(scope="module")
def renderer() -> ChatRenderer:
    return make_renderer(fresh_tokenizer())


def episode(task_id: str = "proc-train-000001") -> ExpertEpisode:
    def turn(name: str, output: str, **arguments: str) -> EpisodeTurn:
        call = ToolCall(id="call_0", name=name, arguments=arguments)
        return EpisodeTurn(calls=(call,), results=(ToolResult(call_id="call_0", output=output),))

    return ExpertEpisode(
        task_id=task_id,
        bundle_hash="0" * 64,
        profile="toy",
        messages=({"role": "system", "content": "s"}, {"role": "user", "content": "`f(1)` is 2 instead of 3."}),
        turns=(turn("read_file", "1|def f(x):", path="a.py"), turn("finish", "")),
    )


def test_an_episode_becomes_what_the_policy_would_have_seen(renderer: ChatRenderer) -> None:
    ids, weights, _ = tokenize_episode(renderer, episode(), observation_weight=0.1)
    text = renderer.tokenizer.decode(ids)
    assert text == (
        "<|bos|><|user|>`f(1)` is 2 instead of 3.<|end|>"
        '<|assistant|>{"name": "read_file", "arguments": {"path": "a.py"}}<|end|>'
        "<|tool|>1|def f(x):<|end|>"
        '<|assistant|>{"name": "finish", "arguments": {}}<|end|>'
    )
    said = renderer.tokenizer.decode([token for token, weight in zip(ids, weights, strict=True) if weight == 1.0])
    assert (
        said == '{"name": "read_file", "arguments": {"path": "a.py"}}<|end|>{"name": "finish", "arguments": {}}<|end|>'
    )


def test_failed_calls_are_read_but_not_imitated(renderer: ChatRenderer) -> None:
    good = episode()
    error = ToolError(kind=ToolErrorKind.NOT_FOUND, message="no such file: a.py")
    failed = good.turns[0].results[0].model_copy(update={"error": error, "output": "error: no such file: a.py"})
    bad = good.model_copy(update={"turns": (good.turns[0].model_copy(update={"results": (failed,)}), good.turns[1])})
    ids, weights, _ = tokenize_episode(renderer, bad, observation_weight=0.1)
    said = renderer.tokenizer.decode([token for token, weight in zip(ids, weights, strict=True) if weight == 1.0])
    assert said == '{"name": "finish", "arguments": {}}<|end|>'


def test_each_pass_shows_every_episode_once(renderer: ChatRenderer) -> None:
    episodes = [
        episode(f"proc-train-{n:06d}").model_copy(update={"messages": ({"role": "user", "content": str(n)},)})
        for n in range(7)
    ]
    stream = sft_examples(renderer, episodes, seed=0, observation_weight=0.1)
    passes = [[tuple(example.ids) for example in islice(stream, 7)] for _ in range(2)]
    assert set(passes[0]) == set(passes[1])
    assert len(set(passes[0])) == 7
    assert passes[0] != passes[1]
    with pytest.raises(ValueError, match="no expert episodes"):
        next(sft_examples(renderer, [], seed=0, observation_weight=0.1))


def test_batches_hold_all_examples_within_the_budget() -> None:
    examples = [Example([1] * length, [1.0] * length) for length in range(1, 101)]
    made = list(batches(iter(examples), batch_tokens=300, seed=0, pool=40))
    assert sorted(len(example.ids) for batch in made for example in batch) == list(range(1, 101))
    assert all(max(len(e.ids) for e in batch) * len(batch) <= 300 for batch in made)


def test_the_cache_survives_a_round_trip_and_names_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "expert.jsonl"
    written = [episode(), episode("proc-train-000002")]
    write_episodes(path, written)
    assert read_episodes(path) == written
    assert [p.name for p in path.parent.iterdir()] == ["expert.jsonl"]
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(ValueError, match=r"expert\.jsonl, line 3.*delete"):
        read_episodes(path)


def test_the_cache_name_follows_everything_that_matters() -> None:
    names = {Recording(10).file_name, Recording(11).file_name, Recording(10, seed=1).file_name}
    assert len(names) == 3
    assert Recording(10).file_name == Recording(10).file_name
    assert Recording(10, seed=1).first - Recording(10).first >= 50_000


def test_episodes_of_other_tasks_are_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Recording(10).file_name
    monkeypatch.setattr("trainer.sft.recording.generate", lambda seed, split: generate(seed + 1, split))
    assert Recording(10).file_name != before


def test_replay_takes_its_share_and_loses_nothing() -> None:
    own = [Example([n], [1.0]) for n in range(400)]
    other = (Example([-1], [1.0]) for _ in iter(int, 1))

    def draw(share: float, seed: int) -> list[int]:
        return [example.ids[0] for example in islice(with_replay(iter(own), other, share=share, seed=seed), 400)]

    mixed = draw(0.25, 1)
    assert 70 < mixed.count(-1) < 130
    assert [n for n in mixed if n >= 0] == list(range(400 - mixed.count(-1)))
    assert mixed == draw(0.25, 1)
    assert mixed != draw(0.25, 2)
    assert draw(0.0, 1) == list(range(400))
