"""Choosing a base model before any agent training: measures that later training does not blur.

* **Codebase NLL**: the files of a codebase in alphabetical order, one after another, and the negative log-likelihood of all
  tokens under a rolling window; in bits a byte, since tokenizers differ. Lines of recent commits count once more, alone: what
  a pre-trained model is least likely to have seen (`codebase.py`).
* **State tracking**: a file of the codebase, a series of diffs, and the question for the file as it is after them
  (`questions.py`); the mean distance in characters between what the model writes and what is right (whole-file accuracy would
  hang on single characters).

Agent benchmarks are left out on purpose: what they measure can change drastically in reinforcement learning.

    python -m trainer.model_selection.selection --policy DIR … --codebase DIR [--commits N | --since DATE] [--window TOKENS]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from trainer import policy as policies
from trainer.config import ParallelConfig
from trainer.errors import StageError
from trainer.midtrain.corpus.documents import Document
from trainer.midtrain.corpus.readers import is_git
from trainer.model_selection.codebase import (
    CHANGES,
    COMMITS,
    ITEMS,
    MAX_BYTES,
    WINDOW,
    Codebase,
    Recent,
    by_file,
    read_codebase,
)
from trainer.model_selection.questions import StateItem, generated, of_codebase
from trainer.model_selection.scores import FileBits, Questions, Selection, compare, rate
from trainer.policy import Policy
from trainer.stages.device import device_of

STRIDE = WINDOW // 2
"""By how many tokens the window rolls: every token but the first has at least half a window before it (fewer at the
beginning)."""
Said = Callable[[str, float], None]
"""Hears what is done now, and what share of it is."""


def unheard(_doing: str, _share: float) -> None:
    pass


def codebase_text(documents: Sequence[Document]) -> str:
    """Files in alphabetical order of their paths, each under its name."""
    return "".join(f"# {d.path}\n{d.text}\n" for d in sorted(documents, key=lambda d: (d.path, d.source)))


def rolling_nll(policy: Policy, text: str, *, window: int = WINDOW, stride: int = STRIDE) -> tuple[float, int]:
    """(nats, tokens) of `text`; each token is scored once. Raises ValueError for less than two tokens."""
    ids = policy.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    nats = token_nats(policy, ids, window=window, stride=stride)
    return sum(nats), len(ids) - 1


@torch.no_grad()
def token_nats(policy: Policy, ids: Sequence[int], *, window: int, stride: int, said: Said = unheard) -> list[float]:
    """What each token costs after those before it in its window; the first costs nothing. Raises ValueError."""
    if len(ids) < 2:
        raise ValueError("the codebase has no text to score; check its path")
    embedding: Any = policy.model.get_input_embeddings()
    known = embedding.weight.shape[0]
    if max(ids) >= known:
        raise ValueError(
            f"the tokenizer makes token id {max(ids)} and the weights know {known} tokens: they are of different policies; "
            "put the tokenizer files of the model beside its weights"
        )
    nats = [0.0]
    for end in range(min(window, len(ids)), len(ids) + stride, stride):
        end = min(end, len(ids))
        if end <= len(nats):
            break
        begin = max(0, end - window)
        rows = torch.tensor([ids[begin:end]], device=policy.model.device)
        logps = torch.log_softmax(policy.model(rows, use_cache=False).logits[0].float(), -1)
        wanted = torch.arange(len(nats) - begin, end - begin, device=rows.device)
        nats += (-logps[wanted - 1, rows[0, wanted]]).tolist()
        said("reads the codebase", len(nats) / len(ids))
    return nats


@dataclass(frozen=True, slots=True)
class Scored:
    """A codebase as one policy reads it."""

    files: list[FileBits]
    nats: float
    tokens: int
    unknown: int
    seconds: float


def score(policy: Policy, codebase: Codebase, *, window: int, said: Said = unheard) -> Scored:
    """Raises ValueError (a tokenizer that cannot be measured)."""
    if not getattr(policy.tokenizer, "is_fast", False):
        raise ValueError(
            f"the tokenizer of {policy.dir} does not say where its tokens lie in a text; save it with tokenizer.json"
        )
    made = policy.tokenizer(codebase.text, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
    ids = made["input_ids"]
    began = time.perf_counter()
    nats = token_nats(policy, ids, window=window, stride=max(1, window // 2), said=said)
    seconds = time.perf_counter() - began
    files = by_file(codebase, made["offset_mapping"], [nat / math.log(2) for nat in nats])
    unknown = ids.count(policy.tokenizer.unk_token_id) if policy.tokenizer.unk_token_id is not None else 0
    return Scored(files, sum(nats), len(ids) - 1, unknown, seconds)


@torch.no_grad()
def answer(policy: Policy, item: StateItem) -> str:
    """What the model writes, greedily, in as many characters as the answer may need and a half more."""
    ids = policy.tokenizer(item.prompt, add_special_tokens=False)["input_ids"]
    budget = len(policy.tokenizer(item.answer, add_special_tokens=False)["input_ids"])
    model: Any = policy.model
    made = model.generate(
        torch.tensor([ids], device=policy.model.device),
        attention_mask=torch.ones((1, len(ids)), dtype=torch.long, device=policy.model.device),
        max_new_tokens=budget + budget // 2,
        do_sample=False,
        pad_token_id=policy.tokenizer.pad_token_id or 0,
    )
    return str(policy.tokenizer.decode(made[0][len(ids) :], skip_special_tokens=True))


def distance(said: str, right: str) -> int:
    """Characters to insert, delete or replace (Levenshtein)."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(said, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]


def select(
    folder: Path,
    codebase: Codebase,
    *,
    name: str = "",
    window: int = WINDOW,
    items: int = ITEMS,
    changes: int = CHANGES,
    seed: int = 0,
    questions: Questions = "codebase",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    said: Said = unheard,
) -> Selection:
    """Measure one candidate. Raises StageError (no such device), PolicyUnreadable, ValueError (nothing to score, a tokenizer of
    another policy)."""
    said("loads the policy", 0.0)
    policy = policies.load(folder)
    model: Any = policy.model
    model.to(device_of(ParallelConfig(device=device)))
    longest = int(policy.model.config.max_position_embeddings)
    window = min(window, longest)
    scored = score(policy, codebase, window=window, said=said)
    size = sum(file.bytes for file in scored.files)
    recent = [(file.recent_bits, file.recent_bytes) for file in scored.files]
    asked = of_codebase(codebase, items, changes=changes, seed=seed) if questions == "codebase" else []
    source: Questions = "codebase" if asked else "generated"
    asked = asked or generated(items, changes=changes, seed=seed)
    distances = []
    for number, item in enumerate(asked):
        said("answers questions", number / len(asked))
        distances.append((distance(answer(policy, item)[: 2 * len(item.answer)], item.answer), 1))
    return Selection(
        policy=name or str(folder),
        codebase=codebase.name,
        revision=codebase.revision,
        before=codebase.before,
        text_digest=codebase.digest,
        window=window,
        codebase_nll=scored.nats,
        codebase_tokens=scored.tokens,
        codebase_bytes=size,
        bits_per_byte=rate([(file.bits, file.bytes) for file in scored.files]),
        recent_bits_per_byte=rate(recent) if codebase.before else None,
        recent_bytes=sum(file.recent_bytes for file in scored.files),
        unknown_tokens=scored.unknown,
        bytes_per_second=size / scored.seconds,
        state_distance=rate(distances),
        state_items=len(asked),
        state_source=source,
        files=scored.files,
    )


def settings(parser: argparse.ArgumentParser) -> None:
    """What is measured, of the command line."""
    window = parser.add_mutually_exclusive_group()
    window.add_argument(
        "--commits", type=int, help=f"recent: the last so many (default {COMMITS} of a git repository; 0: none)"
    )
    window.add_argument("--since", default="", help="recent: since a date, for example 2026-01-31")
    parser.add_argument("--window", type=int, default=WINDOW, help="tokens that are seen at a time")
    parser.add_argument(
        "--max-bytes", "--most-bytes", type=int, default=MAX_BYTES, help="of the codebase that are measured"
    )
    parser.add_argument("--items", type=int, default=ITEMS, help="questions of state tracking")
    parser.add_argument("--changes", type=int, default=CHANGES, help="diffs of one question")
    parser.add_argument(
        "--questions", choices=["codebase", "generated"], default="codebase", help="what state tracking asks about"
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where it is computed")


def asked_codebase(
    path: Path, *, commits: int | None, since: str, window: int, max_bytes: int, items: int, name: str = ""
) -> Codebase:
    """Raises SourceUnreadable, NothingToMeasure, ValueError naming the option."""
    for option, value, least in (
        ("window", window, 2),
        ("max-bytes", max_bytes, 1),
        ("items", items, 1),
        ("commits", commits or 0, 0),
    ):
        if value < least:
            raise ValueError(f"--{option} is {value}; it must be at least {least}")
    wanted = (COMMITS if is_git(path) else 0) if commits is None and not since else commits or 0
    try:
        recent = Recent(commits=wanted, since=since)
    except ValueError as error:
        raise ValueError(f"--since is {since!r}; write a date like 2026-01-31") from error
    return read_codebase(path, recent, max_bytes=max_bytes, name=name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare base models before training")
    parser.add_argument(
        "--policy", type=Path, action="append", required=True, help="Hugging Face folder; may be repeated"
    )
    parser.add_argument("--codebase", type=Path, required=True, help="folder, git repository, .jsonl or .parquet file")
    settings(parser)
    given = parser.parse_args()
    found: list[Selection] = []
    try:
        codebase = asked_codebase(
            given.codebase, commits=given.commits, since=given.since, window=given.window,
            max_bytes=given.max_bytes, items=given.items,
        )  # fmt: skip
        for folder in given.policy:
            found.append(
                select(
                    folder,
                    codebase,
                    window=given.window,
                    items=given.items,
                    changes=given.changes,
                    questions=given.questions,
                    device=given.device,
                )
            )
            sys.stdout.write(found[-1].model_dump_json(exclude={"files"}) + "\n")
            sys.stdout.flush()
    except (ValueError, StageError) as error:  # each names what was found, and the remedy
        parser.exit(1, f"error: {error}\n")
    for other in found[1:]:
        sys.stdout.write(json.dumps(compare(other, found[0]).model_dump()) + "\n")


if __name__ == "__main__":
    main()
