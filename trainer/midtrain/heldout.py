"""Held-out loss of mid-training: by language, and on a chosen codebase.

A fixed share of a corpus is never trained on: the documents whose digest says so, whatever else the corpus holds, so
that two corpora with the same file hold out the same file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from trainer.learning.supervised import Example
from trainer.midtrain.corpus.documents import Document
from trainer.midtrain.corpus.readers import read_source
from trainer.midtrain.packing import cut
from trainer.stages.held_out import HeldOut

SHARE = 20
"""One document in so many is held out."""


def is_held_out(document: Document) -> bool:
    return int(document.digest[:8], 16) % SHARE == 0


def as_example(tokenizer: PreTrainedTokenizerBase, text: str) -> Example:
    """A document with its start and end tokens, where the tokenizer has such; every token but the first counts."""
    ids = [int(tokenizer.bos_token_id)] if tokenizer.bos_token_id is not None else []
    ids += tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    ids += [int(tokenizer.eos_token_id)] if tokenizer.eos_token_id is not None else []
    return Example(ids, [0.0] + [1.0] * (len(ids) - 1))


def held_out(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    *,
    length: int,
    max_tokens: int,
    codebase: Path | None,
) -> HeldOut:
    """Rows of at most `length` tokens from the held-out documents, and from a codebase: `max_tokens` tokens of each language,
    and no more rows once there are so many. Raises SourceUnreadable."""
    by_name: dict[str, list[Example]] = defaultdict(list)

    def add(name: str, text: str) -> None:
        known = sum(len(row.ids) for row in by_name[name])
        for row in cut(as_example(tokenizer, text), length):
            if len(row.ids) > 1 and known < max_tokens:
                by_name[name].append(row)
                known += len(row.ids)

    for document in documents:
        add(f"loss/language/{document.language}", document.text)
    for document in read_source(codebase) if codebase else ():
        add("loss/codebase", document.text)
    return HeldOut({name: rows for name, rows in by_name.items() if rows})


def corpus_examples(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document], order: Iterator[int]
) -> Iterator[Example]:
    """Documents as examples, in the order of the indices."""
    for index in order:
        yield as_example(tokenizer, documents[index].text)
