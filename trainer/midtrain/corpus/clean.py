"""What is left out of a corpus, and why: copies, near-copies, and texts that hold the content of a suite's tasks.

A task's content is what grading compares with: its oracle's lines, its hidden calls and tests, the files that it brings
or lays over its environment, and its instruction. A document is contaminated when it shares a run of `RUN` words with it
that neither a template of the suite nor the head of its files explains: runs that stand in more than `COMMON` tasks, or in
so many files of a checkout that tasks share, are such.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict
from rensa import RMinHash, RMinHashLSH

from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, SuiteVerifier, TaskSpec
from trainer.midtrain.corpus.documents import Document

PERMUTATIONS = 128
BANDS = 32
THRESHOLD = 0.8
"""Estimated share of common shingles from which a document is a near-copy of an earlier one."""
SHINGLE = 5
RUN = 10
COMMON = 5
SEED = 7_919


class Guard(BaseModel):
    """A suite that something was kept clear of, as it was then."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    suite: str
    tasks: int
    digest: str

    @classmethod
    def of(cls, suite: str, bundles: Iterable[str]) -> Guard:
        """`bundles` are the hashes of its tasks."""
        known = sorted(bundles)
        return cls(suite=suite, tasks=len(known), digest=hashlib.sha256("".join(known).encode()).hexdigest())


@dataclass(slots=True)
class Cleaned:
    """Counts of one cleaning."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason → documents."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Reason → the first few, as `source:path`."""

    def drop(self, document: Document, reason: str) -> None:
        self.dropped[reason] += 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < 5:
            shown.append(f"{document.source}:{document.path}")


def clean(documents: Iterable[Document], *, against: Iterable[TaskSpec], report: Cleaned) -> Iterator[Document]:
    """The documents that stay, in order; the first of several copies stays. Counts go to `report`."""
    guarded = runs_of(against)
    seen: set[str] = set()
    near = RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=BANDS)
    kept: list[RMinHash] = []
    for document in documents:
        words = words_of(document.text)
        plain = hashlib.sha256(" ".join(words).encode()).hexdigest()
        if plain in seen:
            report.drop(document, "duplicate")
            continue
        seen.add(plain)
        if guarded and any(run in guarded for run in runs(words)):
            report.drop(document, "contaminated")
            continue
        hashed = RMinHash(num_perm=PERMUTATIONS, seed=SEED)
        hashed.update([" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1))])
        if any(hashed.jaccard(kept[key]) >= THRESHOLD for key in near.query(hashed)):
            report.drop(document, "near-duplicate")
            continue
        near.insert(len(kept), hashed)
        kept.append(hashed)
        report.kept += 1
        yield document


def runs_of(tasks: Iterable[TaskSpec]) -> frozenset[int]:
    """Runs of words that mark the content of these tasks."""
    units: dict[str, set[int]] = defaultdict(set)
    for task in tasks:
        for unit, text in _content(task):
            units[unit].update(runs(words_of(text)))
    counts = Counter(run for found in units.values() for run in found)
    return frozenset(run for run, count in counts.items() if count <= COMMON)


def _content(task: TaskSpec) -> Iterator[tuple[str, str]]:
    """(what it belongs to, text): the task, or a file that tasks over one checkout share."""
    environment, verifier = task.environment, task.verifier
    own = f"task {task.bundle_hash}"
    yield own, task.instruction
    if isinstance(verifier, CallsVerifier):
        yield own, " ".join(f"{arguments} {expected}" for arguments, expected in verifier.cases)
    if isinstance(environment, InlineEnvironment):
        brought, digest = environment.files, ""
    else:
        brought, digest = environment.overrides, environment.digest
    hidden = verifier.test_files if isinstance(verifier, SuiteVerifier) else {}
    for path, text in (*task.gold.items(), *brought.items(), *hidden.items()):
        yield f"file {digest} {path}" if digest else own, text


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def runs(words: list[str]) -> Iterator[int]:
    for at in range(len(words) - RUN + 1):
        yield int.from_bytes(hashlib.blake2b(" ".join(words[at : at + RUN]).encode(), digest_size=8).digest())
