"""Choosing a base model before any agent training: two measures that later training does not blur.

* **Codebase NLL**: the files of a codebase in alphabetical order, one after another, and the summed negative log-likelihood
  of all tokens under a rolling window; per character as well, since tokenizers differ.
* **State tracking**: a file, a series of diffs, and the question for the file as it is after them; the mean distance in
  characters between what the model writes and what is right (whole-file accuracy would hang on single characters).

Agent benchmarks are left out on purpose: what they measure can change drastically in reinforcement learning.

    python -m trainer.stages.selection --policy DIR … --codebase DIR
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from sandbox.tasks.generators.procedural import problem
from trainer import policy as policies
from trainer.policy import Policy
from trainer.stages.corpus.documents import Document
from trainer.stages.corpus.readers import read_source

WINDOW, STRIDE = 512, 256
"""Tokens that are seen at a time, and by how many the window rolls: every token but the first has at least half a window
before it (fewer at the beginning)."""
QUESTION = "\n# the file after these changes:\n"


class Selection(BaseModel):
    """What one candidate scored. Lower is better everywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy: str
    codebase_nll: float
    """Summed nats."""
    nll_per_character: float
    codebase_tokens: int
    state_distance: float
    """Mean characters to insert, delete or replace."""
    state_items: int


@dataclass(frozen=True, slots=True)
class StateItem:
    """A question of state tracking: what is read, and the file that is right."""

    prompt: str
    answer: str


def codebase_text(documents: Sequence[Document]) -> str:
    """Files in alphabetical order of their paths, each under its name."""
    return "".join(f"# {d.path}\n{d.text}\n" for d in sorted(documents, key=lambda d: (d.path, d.source)))


@torch.no_grad()
def rolling_nll(policy: Policy, text: str, *, window: int = WINDOW, stride: int = STRIDE) -> tuple[float, int]:
    """(nats, tokens) of `text`; each token is scored once. Raises ValueError for less than two tokens."""
    ids = policy.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if len(ids) < 2:
        raise ValueError("the codebase has no text to score; check its path")
    total, scored = 0.0, 1
    for end in range(min(window, len(ids)), len(ids) + stride, stride):
        end = min(end, len(ids))
        if end <= scored:
            break
        begin = max(0, end - window)
        rows = torch.tensor([ids[begin:end]], device=policy.model.device)
        logps = torch.log_softmax(policy.model(rows, use_cache=False).logits[0].float(), -1)
        wanted = torch.arange(scored - begin, end - begin)
        total -= float(logps[wanted - 1, rows[0, wanted]].sum())
        scored = end
    return total, len(ids) - 1


def state_items(count: int, *, changes: int, seed: int) -> list[StateItem]:
    """Files of the procedural family under a series of one-line diffs, away from the seeds of suites."""
    rng = random.Random(f"state:{seed}")
    items: list[StateItem] = []
    while len(items) < count:
        task = problem(rng.randrange(2_000_000_000, 3_000_000_000), "train")
        current = dict(task.current)
        before = task.function.head + task.function.body(current)
        text = "\n".join(before) + "\n"
        for _ in range(changes):
            edits = [edit for slot in task.function.skeleton.faults for edit in task.edits(current, slot)]
            if not edits:
                break
            edit = rng.choice(edits)
            current[edit.slot] = edit.option
            after = task.function.head + task.function.body(current)
            text += "\n".join(line for line in difflib.unified_diff(before, after, lineterm="", n=0)) + "\n"
            before = after
        items.append(StateItem(text + QUESTION, "\n".join(before) + "\n"))
    return items


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
    folder: Path, codebase: Path, *, items: int = 16, changes: int = 3, seed: int = 0, most_tokens: int | None = None
) -> Selection:
    """Measure one candidate. Raises PolicyUnreadable, SourceUnreadable, ValueError (nothing to score)."""
    policy = policies.load(folder)
    text = codebase_text(list(read_source(codebase)))
    if most_tokens is not None:
        text = text[: 4 * most_tokens]
    window = min(WINDOW, int(policy.model.config.max_position_embeddings))
    nll, tokens = rolling_nll(policy, text, window=window, stride=window // 2)
    asked = state_items(items, changes=changes, seed=seed)
    distances = [distance(answer(policy, item)[: 2 * len(item.answer)], item.answer) for item in asked]
    return Selection(
        policy=str(folder), codebase_nll=nll, nll_per_character=nll / len(text), codebase_tokens=tokens,
        state_distance=fmean(distances), state_items=len(asked),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare base models before training")
    parser.add_argument(
        "--policy", type=Path, action="append", required=True, help="Hugging Face folder; may be repeated"
    )
    parser.add_argument("--codebase", type=Path, required=True, help="folder, git repository, .jsonl or .parquet file")
    parser.add_argument("--items", type=int, default=16, help="questions of state tracking")
    parser.add_argument("--changes", type=int, default=3, help="diffs of one question")
    arguments = parser.parse_args()
    for folder in arguments.policy:
        found = select(folder, arguments.codebase, items=arguments.items, changes=arguments.changes)
        sys.stdout.write(json.dumps(found.model_dump()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
