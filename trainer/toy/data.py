"""Data of the supervised stages: a mid-training mixture, and expert episodes as token streams.

Both are endless, seeded iterators of `Example`s. A resumed stage skips what it has consumed by drawing again.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from transformers import PreTrainedTokenizerBase

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.procedural import problem, write_function
from sandbox.tasks.procedural.vocabulary import sample_words
from trainer.learning.supervised import Example
from trainer.policy.chat import ChatRenderer
from trainer.toy.tokenizer import library_source

SOURCE_TOKENS = 240
SOURCE_BYTES = 1_500_000
COMMIT_SEEDS = (10_000_000, 1_000_000_000)
"""Seed range of tasks for commits, far from the seeds of suites, experts and evaluations."""
BASE_DRILLS, BASE_SOURCE = 0.15, 0.05
"""Shares of drills and of library source in the mid-training mixture of the shipped base policy."""
COMMIT_SHARE = 0.6
"""Share of commits in the rest of the mixture; correct modules make up what remains."""


# -- mid-training -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A span of text with the weight of its tokens. *Telling* tokens are operators and numbers after a space."""

    text: str
    weight: float
    telling: float


NAMES = 0.05
"""Weight of text with unpredictable names; it is read and hardly learned."""
FORM = 0.3
"""Weight of predictable text: layout, and names that occur earlier in the text."""
CHOICE = 1.0
"""Weight of text that the docstring determines."""
TELLING = re.compile(r" (?:[-+*/%<>=!]=?|\d)")


def drill(rng: random.Random, tokens: Sequence[int]) -> Example:
    """Copying drill: spans of random tokens, then the same spans again. The repeats carry the loss.

    The first token of a repeat is unpredictable and carries none.
    """
    spans = [[rng.choice(tokens) for _ in range(rng.randint(3, 12))] for _ in range(rng.randint(3, 6))]
    ids, weights = [], []
    for position in range(3):
        for span in rng.sample(spans, len(spans)):
            ids += span
            weights += [0.0] + [FORM * (position > 0)] * (len(span) - 1)
    return Example(ids, weights)


def listing(lines: Sequence[str], first: int = 1) -> str:
    """Lines in the format of `read_file`."""
    return "".join(f"{number}|{line}\n" for number, line in enumerate(lines, first))


def module(rng: random.Random) -> list[Piece]:
    """Correct functions of the training split, as tools show them or as plain source."""
    pieces = []
    for _ in range(rng.randint(1, 2)):
        function = write_function(rng, "train")
        if rng.random() < 0.15:
            head, body = ("".join(f"{line}\n" for line in lines) for lines in (function.head, function.body()))
        else:
            head, body = listing(function.head), listing(function.body(), 3)
        if rng.random() < 0.5:
            head = f"{sample_words(rng, 'train', 1)[0]}.py:1:{function.head[0]}\n{head}"
        pieces += [Piece(head, NAMES, NAMES), Piece(body, FORM, CHOICE)]
    return pieces


def commit(rng: random.Random) -> list[Piece]:
    """A faulty function of the training split, and the one-line change that makes it match its docstring."""
    task = problem(rng.randrange(*COMMIT_SEEDS), "train")
    fix = next(e for e in task.edits(task.current, task.fault) if e.option == task.function.choices[task.fault])
    where, rest = re.match(r"(\w+)(.*)", fix.old, re.DOTALL).groups()  # type: ignore[union-attr]
    return [
        Piece(listing(task.function.head + task.function.body(task.current)), NAMES, NAMES),
        Piece("-", FORM, FORM),
        Piece(where, CHOICE, CHOICE),
        Piece(f"{rest}\n", FORM, CHOICE),
        Piece(f"+{fix.new}\n", FORM, CHOICE),
    ]


def midtrain_examples(
    tokenizer: PreTrainedTokenizerBase, *, seed: int, drill_share: float, source_share: float
) -> Iterator[Example]:
    """Drills and standard-library source in the given shares; commits and correct modules fill the rest."""
    rng = random.Random(f"midtrain:{seed}")
    added = set(tokenizer.get_added_vocab().values())
    plain = [index for index in range(len(tokenizer)) if index not in added]
    telling = {index for index in plain if TELLING.fullmatch(str(tokenizer.decode([index])))}
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
        elif kind < drill_share + source_share:
            text = rng.choice(library)
            at = rng.randrange(len(text) - SOURCE_TOKENS + 1)
            yield Example(start + text[at : at + SOURCE_TOKENS], [FORM] * (len(start) + SOURCE_TOKENS))
        else:
            ids, weights = list(start), [0.0] * len(start)
            for piece in commit(rng) if rng.random() < COMMIT_SHARE else module(rng):
                said = tokenizer(piece.text, add_special_tokens=False)["input_ids"]
                ids += said
                weights += [piece.telling if token in telling else piece.weight for token in said]
            yield Example(ids, weights)


# -- expert episodes ------------------------------------------------------------------------------------


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
