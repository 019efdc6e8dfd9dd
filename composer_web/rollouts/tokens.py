"""The raw tokens of a segment with their log-probabilities, a page at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from trainer.rollouts.types import Segment

PER_PAGE = 1000
HEAT = ((0.05, 5), (0.2, 4), (0.5, 3), (0.7, 2), (0.9, 1))
"""A sampled token below this probability gets this step of the heat scale."""

VERSION_COLOURS = 6


@dataclass(frozen=True)
class TokenView:
    text: str
    css: str
    title: str


@lru_cache(maxsize=8)
def tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a policy folder; None when there is none on this machine (ids are shown instead)."""
    file = folder / "tokenizer.json"
    return Tokenizer.from_file(str(file)) if file.is_file() else None


def views(segment: Segment, span: Sequence[int], decoder: Tokenizer | None) -> list[TokenView]:
    """Tokens at the positions `span` of a segment."""
    oldest = _oldest(segment)
    return [_view(segment, position, decoder, oldest) for position in span]


@dataclass(frozen=True)
class Summary:
    """The sampled tokens of a span in numbers."""

    sampled: int
    mean_logprob: float | None
    surprising: int
    """Sampled below the lowest step of the heat scale."""
    versions: list[tuple[int, str, int]]
    """(policy version, its css class, tokens), oldest first."""


def summary(segment: Segment, span: Sequence[int]) -> Summary:
    sampled = [i for i in span if segment.loss_mask[i]]
    logprobs = [segment.logprobs[i] for i in sampled]
    counts = Counter(segment.versions[i] for i in sampled)
    oldest = _oldest(segment)
    return Summary(
        len(sampled),
        sum(logprobs) / len(logprobs) if logprobs else None,
        sum(math.exp(min(0.0, value)) < HEAT[0][0] for value in logprobs),
        [(version, _version_css(version, oldest), count) for version, count in sorted(counts.items())],
    )


def _oldest(segment: Segment) -> int:
    return min((v for v in segment.versions if v >= 0), default=0)


def _version_css(version: int, oldest: int) -> str:
    return f"ver-{(version - oldest) % VERSION_COLOURS + 1}"


def _view(segment: Segment, position: int, decoder: Tokenizer | None, oldest: int) -> TokenView:
    token = segment.tokens[position]
    text = decoder.decode([token], skip_special_tokens=False) if decoder else f"{token} "
    if not segment.loss_mask[position]:
        return TokenView(text, "tok--in", f"#{position} id {token}: not sampled")
    logprob = segment.logprobs[position]
    probability = math.exp(min(0.0, logprob))
    heat = next((f" heat-{step}" for limit, step in HEAT if probability < limit), "")
    title = (
        f"#{position} id {token}: log p {logprob:.4f}, p {probability:.3f}, policy version {segment.versions[position]}"
    )
    return TokenView(text, f"tok--out {_version_css(segment.versions[position], oldest)}{heat}", title)
