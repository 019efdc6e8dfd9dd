"""The synthetic mixture of mid-training: copying drills, library source, commits and correct modules.

It needs no prepared corpus. The stream is endless and seeded: a resumed stage skips what it has consumed by drawing
again.
"""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from sandbox.tasks.procedural import problem, write_function
from sandbox.tasks.procedural.vocabulary import sample_words
from trainer.learning.supervised import Example

SOURCE_TOKENS = 240
SOURCE_BYTES = 1_500_000
COMMIT_SEEDS = (10_000_000, 1_000_000_000)
"""Seed range of tasks for commits, far from the seeds of suites, experts and evaluations."""
BASE_DRILLS, BASE_SOURCE = 0.15, 0.05
"""Shares of drills and of library source in the mid-training mixture of the shipped base policy."""
COMMIT_SHARE = 0.6
"""Share of commits in the rest of the mixture; correct modules make up what remains."""


def library_source(limit_bytes: int, seed: int) -> list[str]:
    """Modules of the running interpreter's standard library, in seeded order, up to about `limit_bytes`."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    random.Random(seed).shuffle(files)
    texts: list[str] = []
    for file in files:
        if sum(map(len, texts)) >= limit_bytes:
            break
        texts.append(file.read_text(encoding="utf-8", errors="replace"))
    return texts


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


def synthetic_examples(
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
