"""Scores of base-model candidates on a codebase, and differences between two candidates. Loads without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

RESAMPLES = 1000
Questions = Literal["codebase", "generated"]
Pairs = Sequence[tuple[float, float]]
"""(bits, bytes) per file, or (distance, 1) per question."""


class FileBits(BaseModel):
    """Bits of one file: in full, and of its recent lines."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str
    bits: float = 0.0
    bytes: int = 0
    recent_bits: float = 0.0
    recent_bytes: int = 0


class Interval(BaseModel):
    """A mean with its 95 % interval over resampled items."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    value: float
    low: float
    high: float


def rate(pairs: Pairs) -> Interval:
    """Sum of the first over sum of the second (bits per byte), with a bootstrap over files."""
    return _drawn([(*pair, 0.0, 1.0) for pair in pairs if pair[1]])


def difference(ours: Pairs, theirs: Pairs) -> Interval:
    """Rate of the first minus rate of the second, with both over the same files in every draw."""
    return _drawn([(*a, *b) for a, b in zip(ours, theirs, strict=True) if a[1]])


def _drawn(rows: Sequence[tuple[float, float, float, float]]) -> Interval:
    """Bootstrap interval of sum 0 / sum 1 - sum 2 / sum 3."""
    table_N4 = np.array(rows)
    drawn_RN = np.random.default_rng(0).integers(0, len(rows), (RESAMPLES, len(rows)))
    sums_R4 = table_N4[drawn_RN].sum(1)
    low, high = np.quantile(sums_R4[:, 0] / sums_R4[:, 1] - sums_R4[:, 2] / sums_R4[:, 3], [0.025, 0.975])
    whole = table_N4.sum(0)
    return Interval(value=float(whole[0] / whole[1] - whole[2] / whole[3]), low=float(low), high=float(high))


class Selection(BaseModel):
    """Scores of one candidate. Lower is better for bits and distances."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy: str
    codebase: str
    revision: str
    before: str
    """Commit after which lines count as recent; empty where none is recent."""
    text_digest: str
    """Digest of the text; candidates are comparable when it is equal."""
    window: int
    codebase_nll: float
    """Summed nats."""
    codebase_tokens: int
    codebase_bytes: int
    bits_per_byte: Interval
    recent_bits_per_byte: Interval | None
    recent_bytes: int
    unknown_tokens: int
    """Pieces of text without a token in the tokenizer; they make the bits too low."""
    bytes_per_second: float
    """Scoring speed on the machine that measured."""
    state_distance: Interval
    """Mean number of characters to insert, delete or replace."""
    state_items: int
    state_source: Questions = "generated"
    """What the questions are about: the codebase, or generated functions (all measurements of older versions)."""
    files: list[FileBits]

    @property
    def tokens_per_byte(self) -> float:
        return self.codebase_tokens / self.codebase_bytes

    @property
    def all(self) -> list[tuple[float, float]]:
        """(bits, bytes) of each file."""
        return [(file.bits, file.bytes) for file in self.files]

    @property
    def recent(self) -> list[tuple[float, float]]:
        """(bits, bytes) of recent lines."""
        return [(file.recent_bits, file.recent_bytes) for file in self.files]


class Difference(BaseModel):
    """Bits per byte of one candidate minus those of another, file by file. Below zero the first is better."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy: str
    other: str
    bits_per_byte: Interval
    recent_bits_per_byte: Interval | None


def compare(ours: Selection, theirs: Selection) -> Difference:
    """Compare two candidates. Raises ValueError when they read different text."""
    if ours.text_digest != theirs.text_digest:
        raise ValueError(
            f"{ours.policy} was measured on {ours.codebase} at {ours.revision[:12] or 'no commit'} and {theirs.policy} on "
            f"{theirs.codebase} at {theirs.revision[:12] or 'no commit'}; measure both in one command"
        )
    recent = difference(ours.recent, theirs.recent) if ours.before and ours.before == theirs.before else None
    return Difference(
        policy=ours.policy,
        other=theirs.policy,
        bits_per_byte=difference(ours.all, theirs.all),
        recent_bits_per_byte=recent,
    )
