"""Expert episodes: their cache file, and the token streams that SFT trains on.

Streams are endless and seeded. A resumed stage skips what it has consumed by drawing again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.harness.types import ToolCall, ToolResult
from trainer.learning.supervised import Example
from trainer.policy.rendering.chat import ChatRenderer


class EpisodeTurn(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]


class ExpertEpisode(BaseModel):
    """A scripted episode that ran in a sandbox, independent of any tokenizer; one JSON line of the cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    task_id: str
    bundle_hash: str
    profile: str
    """Harness profile with the expert's tools."""
    messages: tuple[dict[str, str], ...]
    turns: tuple[EpisodeTurn, ...]


def read_episodes(path: Path) -> list[ExpertEpisode]:
    """All episodes of a cache file. Raises OSError, ValueError naming the damaged line."""
    episodes = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                episodes.append(ExpertEpisode.model_validate_json(line))
            except ValueError as error:
                found = f"{path.name}, line {number}: not an expert episode"
                raise ValueError(f"{found}; delete the file to record anew") from error
    return episodes


def write_episodes(path: Path, episodes: Iterable[ExpertEpisode]) -> None:
    """Write a cache file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".partial")
    with staged.open("w", encoding="utf-8") as file:
        for episode in episodes:
            file.write(json.dumps(episode.model_dump(mode="json"), separators=(",", ":")) + "\n")
    staged.replace(path)


def tokenize_episode(renderer: ChatRenderer, episode: ExpertEpisode, *, observation_weight: float) -> Example:
    """Token stream that a policy with this template would have seen and sampled in the episode.

    Turns with failed calls are read, not imitated: they are weighted as observations, and the turns that follow teach
    recovery.
    """
    ids = renderer.start(list(episode.messages), schemas_of(get_profile(episode.profile)))
    weights = [observation_weight] * len(ids)
    for position, turn in enumerate(episode.turns):
        said = renderer.turn(turn.calls)
        ids += said
        failed = any(result.error for result in turn.results)
        weights += [observation_weight if failed else 1.0] * len(said)
        if position < len(episode.turns) - 1:
            shown = renderer.observe(turn.results, said=said, before=ids[: -len(said)])
            ids += shown
            weights += [observation_weight] * len(shown)
    return Example(ids, weights)


def sft_examples(
    renderer: ChatRenderer, episodes: Sequence[ExpertEpisode], *, seed: int, observation_weight: float
) -> Iterator[Example]:
    """Every episode once per pass, in a new seeded order each pass."""
    if not episodes:
        raise ValueError("there are no expert episodes to train on")
    examples = [tokenize_episode(renderer, episode, observation_weight=observation_weight) for episode in episodes]
    rng = random.Random(f"sft:{seed}")
    while True:
        yield from rng.sample(examples, len(examples))


def with_replay(
    examples: Iterator[Example], replay: Iterator[Example], *, share: float, seed: int
) -> Iterator[Example]:
    """Mix a share of `replay` into `examples`; without it a later stage forgets what an earlier one taught."""
    rng = random.Random(f"replay:{seed}")
    while True:
        yield next(replay if rng.random() < share else examples)
