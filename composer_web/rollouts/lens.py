"""The token lens: every number that is known of the tokens of a turn or a segment, a page at a time.

The sampler's log-probabilities and versions come from the trajectory. Advantage, the trainer's log-probability,
entropy and weight come from the step that trained the group (`keep`); where there was none, the lens says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from tokenizers import Tokenizer

from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.policies.services import real_path
from composer_web.rollouts import selectors
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.tokens import tokenizer
from composer_web.rollouts.trajectory_store import Reading
from composer_web.runs.models import Run
from composer_web.runs.services import add_event
from trainer.learning.token_export import TokenStreams, TrainedGroup, digest_of
from trainer.types import Segment

PER_PAGE = 1000
"""Tokens per response: about 100 kB."""
MAX_TEXT = 200
"""Maximum characters shown per token."""

OF_TRAINER = ("advantages", "trainer_logprobs", "entropy", "weights")

Numbers = list[float | None]


class LensPage(TypedDict):
    """Columns of the tokens [first, end) of a segment. Numbers are None for tokens that were not sampled."""

    segment: int
    total: int
    """Number of tokens in the segment."""
    first: int
    end: int
    before: int | None
    """A position on the previous page, within the requested span."""
    after: int | None
    texts: list[str]
    ids: list[int]
    sampled: list[int]
    versions: list[int]
    logprobs: Numbers
    trainer_logprobs: Numbers
    entropy: Numbers
    advantages: Numbers
    weights: Numbers
    step: int | None
    """Optimiser step that trained on the tokens."""
    missing: dict[str, str]
    """Column → reason why it is empty."""


@dataclass(frozen=True)
class Span:
    """Requested tokens: a whole segment, or a turn with its tool results."""

    segment: int
    first: int
    end: int


def span_of_turn(read: Reading, place: int) -> Span | None:
    """From the turn's first token to the next turn's in the same segment. None if the turn or segment does not
    exist."""
    if place >= read.total:
        return None
    turn, *later = read.turns([i for i in (place, place + 1) if i < read.total])
    if turn.segment >= len(read.head.segment_tokens):
        return None
    length = read.head.segment_tokens[turn.segment]
    end = later[0].token_start if later and later[0].segment == turn.segment else length
    return Span(turn.segment, min(turn.token_start, length), min(max(end, turn.token_end), length))


def span_of_segment(read: Reading, index: int) -> Span | None:
    lengths = read.head.segment_tokens
    return Span(index, 0, lengths[index]) if index < len(lengths) else None


def of(rollout: Rollout, read: Reading, span: Span, at: int) -> LensPage:
    """Page of a span that contains position `at`. Raises ArtifactError."""
    segment = read.segment(span.segment)
    decoder = tokenizer(real_path(selectors.policy_of(rollout.group).base_dir))
    return page_of(segment, span, at, decoder, trained_with(rollout, segment))


def page_of(segment: Segment, span: Span, at: int, decoder: Tokenizer | None, trained: Trained) -> LensPage:
    """Page of the span that contains position `at`; the first page if `at` lies outside."""
    at = at if span.first <= at < span.end else span.first
    first = span.first + (at - span.first) // PER_PAGE * PER_PAGE
    end = min(first + PER_PAGE, span.end)
    places = range(first, end)
    order = _order(segment.loss_mask)
    kept = trained.streams

    def sampled(values: Sequence[float]) -> Numbers:
        return [_short(values[i]) if segment.loss_mask[i] else None for i in places]

    def known(name: str) -> Numbers:
        array = kept.array(name) if kept else None
        if array is None:
            return [None] * len(places)
        return [_short(float(array[order[i]])) if segment.loss_mask[i] else None for i in places]

    return {
        "segment": span.segment,
        "total": len(segment.tokens),
        "first": first,
        "end": end,
        "before": first - 1 if first > span.first else None,
        "after": end if end < span.end else None,
        "texts": [_text(segment.tokens[i], decoder) for i in places],
        "ids": [segment.tokens[i] for i in places],
        "sampled": [int(bool(segment.loss_mask[i])) for i in places],
        "versions": [segment.versions[i] for i in places],
        "logprobs": sampled(segment.logprobs),
        "trainer_logprobs": known("trainer_logprobs"),
        "entropy": known("entropy"),
        "advantages": known("advantages"),
        "weights": known("weights"),
        "step": trained.step,
        "missing": trained.missing,
    }


def _order(mask: Sequence[int]) -> list[int]:
    """Position → number of policy tokens before it."""
    out, count = [], 0
    for one in mask:
        out.append(count)
        count += bool(one)
    return out


def _short(value: float) -> float | None:
    """Round to five digits for a tooltip. None for NaN and infinity, which JSON cannot represent."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _text(token: int, decoder: Tokenizer | None) -> str:
    return decoder.decode([token], skip_special_tokens=False)[:MAX_TEXT] if decoder else f"{token} "


# --- what the trainer knew ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """Trainer data of one segment, or the reason for its absence."""

    streams: TokenStreams | None
    step: int | None
    missing: dict[str, str]


def key_of(group_id: int) -> str:
    return f"groups/{group_id}/trained.json.zst"


def keep(*, run: Run, trained: Sequence[TrainedGroup]) -> None:
    """Store a step's streams beside the trajectories of its groups. A replayed step stores the same again.

    They are for people: when they cannot be written, the run goes on and an event says so. Recorded sessions belong to
    no group and have no lens: theirs are not kept.
    """
    prompts = [group.prompt_index for group in trained]
    rows = Group.objects.filter(run=run, prompt_index__in=prompts).values_list("prompt_index", "pk")
    keys = {prompt: key_of(pk) for prompt, pk in rows}
    try:
        for group in trained:
            if group.prompt_index in keys:
                artifacts().put_model(keys[group.prompt_index], group)
    except ArtifactError as error:
        add_event(run=run, kind="alert", level="warning", message=f"the token lens lacks a step: {error}")


def trained_with(rollout: Rollout, segment: Segment) -> Trained:
    """Trainer data of a segment."""
    group = rollout.group
    try:
        kept = artifacts().get_model(key_of(group.pk), TrainedGroup)
    except ArtifactError as error:
        return Trained(None, None, dict.fromkeys(OF_TRAINER, _why_not(group, error)))
    streams = kept.of(digest_of(segment.tokens, segment.logprobs))
    if streams is None:
        why = f"Step {kept.step} trained on this group without this segment: it was in quarantine or cut off."
        return Trained(None, kept.step, dict.fromkeys(OF_TRAINER, why))
    if streams.tokens != sum(map(bool, segment.loss_mask)):
        why = f"What step {kept.step} kept of these tokens is damaged."
        return Trained(None, kept.step, dict.fromkeys(OF_TRAINER, why))
    why = f"Step {kept.step} did not score these tokens: their advantage is 0, so they could not change the policy."
    return Trained(streams, kept.step, {name: why for name in OF_TRAINER if not getattr(streams, name)})


def _why_not(group: Group, error: ArtifactError) -> str:
    if group.run_id is None:
        owner = "a fork" if group.fork_id else "an evaluation"
        return f"Only rollouts of a run are trained on; this one belongs to {owner}."
    if group.state == "dropped":
        return "The group was dropped and never trained on."
    if group.consumed_step is None:
        return "The trainer has not read this group yet."
    return f"Step {group.consumed_step} kept nothing of its tokens ({error})."
