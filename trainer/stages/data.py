"""What the supervised stages read: a mid-training mixture, and expert episodes as token streams.

Both are endless, seeded iterators of `Example`s; a stage that resumes skips what it had consumed by drawing again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from transformers import PreTrainedTokenizerBase

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.generators.procedural import problem, write_function
from sandbox.tasks.generators.vocabulary import sample_words
from trainer.learning.supervised import Example
from trainer.policy.chat import ChatRenderer
from trainer.policy.tokenizer import library_source

SOURCE_TOKENS = 240
SOURCE_BYTES = 1_500_000
COMMIT_SEEDS = (10_000_000, 1_000_000_000)
"""Tasks that commits are made of: far from the seeds of suites, experts and evaluations."""
COMMIT_SHARE = 0.75
"""Of what is neither drill nor library; the rest are correct modules."""
LISTING_WEIGHT = 0.1
"""Loss weight of a faulty listing: enough to read it, too little to learn to write faults."""


# -- mid-training -------------------------------------------------------------------------------------


def drill(rng: random.Random, tokens: Sequence[int]) -> Example:
    """Copying in its purest form: spans of random tokens, then the same spans again; the repeats carry the loss.

    The first token of a repeat cannot be known and carries none.
    """
    spans = [[rng.choice(tokens) for _ in range(rng.randint(3, 12))] for _ in range(rng.randint(3, 6))]
    ids, weights = [], []
    for position in range(3):
        for span in rng.sample(spans, len(spans)):
            ids += span
            weights += [0.0] + [float(position > 0)] * (len(span) - 1)
    return Example(ids, weights)


def module_listing(rng: random.Random) -> str:
    """Correct modules of the training split, as the tools show them or as plain source."""
    functions = [write_function(rng, "train") for _ in range(rng.randint(1, 2))]
    shape = rng.random()
    if shape < 0.15:
        return "\n\n\n".join("\n".join(f.head + f.body()) for f in functions)
    shown = []
    for function in functions:
        path = f"{sample_words(rng, 'train', 1)[0]}.py"
        listing = "\n".join(f"{number}|{line}" for number, line in enumerate(function.head + function.body(), 1))
        shown.append(f"{path}:1:{function.head[0]}\n{listing}" if shape < 0.5 else listing)
    return "\n".join(shown)


def commit(rng: random.Random) -> tuple[str, str]:
    """A faulty module of the training split as a listing, and the one-line change that makes it agree with its docs."""
    task = problem(rng.randrange(*COMMIT_SEEDS), "train")
    lines = task.function.head + task.function.body(task.current)
    fix = next(e for e in task.edits(task.current, task.fault) if e.option == task.function.choices[task.fault])
    listing = "\n".join(f"{number}|{line}" for number, line in enumerate(lines, 1))
    return f"{listing}\n", f"-{fix.old}\n+{fix.new}\n"


def midtrain_examples(
    tokenizer: PreTrainedTokenizerBase, *, seed: int, drill_share: float, source_share: float
) -> Iterator[Example]:
    """Drills and standard-library source in the given shares; commits and correct modules share the rest."""
    rng = random.Random(f"midtrain:{seed}")
    added = set(tokenizer.get_added_vocab().values())
    plain = [index for index in range(len(tokenizer)) if index not in added]
    library = [
        ids
        for text in library_source(SOURCE_BYTES, seed)
        if len(ids := tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) > SOURCE_TOKENS
    ]
    start = [] if tokenizer.bos_token_id is None else [int(tokenizer.bos_token_id)]
    while True:
        kind = rng.random()
        if kind < drill_share:
            yield drill(rng, plain)
            continue
        if kind < drill_share + source_share:
            text = rng.choice(library)
            at = rng.randrange(len(text) - SOURCE_TOKENS + 1)
            ids = start + text[at : at + SOURCE_TOKENS]
        elif rng.random() < COMMIT_SHARE:
            before, change = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in commit(rng))
            ids = start + before + change
            yield Example(ids, [LISTING_WEIGHT] * (len(ids) - len(change)) + [1.0] * len(change))
            continue
        else:
            ids = start + tokenizer(module_listing(rng), add_special_tokens=False)["input_ids"]
        yield Example(ids, [1.0] * len(ids))


# -- expert episodes ------------------------------------------------------------------------------------


class EpisodeTurn(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]


class ExpertEpisode(BaseModel):
    """A scripted episode as it ran in a sandbox, independent of any tokenizer; one JSON line of the cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    task_id: str
    bundle_hash: str
    profile: str
    """Harness profile whose tools the expert used."""
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
    """The token stream that a policy with this template would have seen and sampled in that episode.

    Turns whose calls failed are read, not imitated: they weigh as observations, and what follows teaches recovery.
    """
    ids = renderer.start(list(episode.messages), schemas_of(get_profile(episode.profile)))
    weights = [observation_weight] * len(ids)
    for position, turn in enumerate(episode.turns):
        said = renderer.turn(turn.calls)
        ids += said
        failed = any(result.error for result in turn.results)
        weights += [observation_weight if failed else 1.0] * len(said)
        if position < len(episode.turns) - 1:
            shown = renderer.observe(turn.results)
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
