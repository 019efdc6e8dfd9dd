"""Curriculum: orders a suite's tasks for a run by difficulty, harder ones later, with a mix of categories.

The order is deterministic in its arguments, and each task occurs at most once. The caller keeps to a single epoch; the
database and the trainer reject a repeated task.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import CurriculumConfig

BANDS = 5
"""Number of difficulty bands; tasks in one band count as equally hard."""
STEEPNESS = 6.0


@dataclass(frozen=True, slots=True)
class Candidate:
    key: int
    category: str = ""
    pass_rate: float | None = None
    """Pass rate in a pre-pass; None when not measured."""
    turns: float = 0.0
    """Mean turns of a rollout in the pre-pass."""
    thinking_tokens: float = 0.0
    """Mean thinking tokens of a rollout in the pre-pass."""


def admitted(candidates: Sequence[Candidate], config: CurriculumConfig) -> list[Candidate]:
    """Candidates inside the difficulty window, in their original order."""
    found = []
    for one in candidates:
        if one.pass_rate is None:
            keep = config.unmeasured == "use"
        else:
            keep = config.max_pass_rate >= one.pass_rate >= config.min_pass_rate
            keep = keep and not (config.drop_solved_all and one.pass_rate >= 1.0)
            keep = keep and not (config.drop_solved_none and one.pass_rate <= 0.0)
        if keep:
            found.append(one)
    return found


def arrange(candidates: Sequence[Candidate], config: CurriculumConfig, *, prompts: int, seed: str) -> list[int]:
    """Task keys in order of use. `candidates` come shuffled; a neutral configuration keeps their order.

    `prompts` is the number that the run needs. Easier tasks are `easy_to_hard` more likely at the first prompt, harder
    ones at the last; `harder` favours hard ones throughout.
    """
    pool = admitted(candidates, config)
    weights = config.weights
    if not (config.easy_to_hard or config.harder or weights):
        return [one.key for one in pool]
    draw = random.Random(f"sampler:{seed}")
    shelves: dict[tuple[str, int], list[int]] = {}
    hardness = hardness_of(pool, config)
    for one in pool:
        shelves.setdefault((one.category, _band(hardness.get(one.key))), []).append(one.key)
    for shelf in shelves.values():
        shelf.reverse()  # taken from the end
    order: list[int] = []
    while shelves:
        progress = min(1.0, len(order) / max(1, prompts - 1))
        tilt = config.easy_to_hard * (2.0 * progress - 1.0) + config.harder
        chosen = _choose(shelves, weights, tilt, draw)
        order.append(shelves[chosen].pop())
        if not shelves[chosen]:
            del shelves[chosen]
    return order


def _choose(
    shelves: dict[tuple[str, int], list[int]], weights: dict[str, float], tilt: float, draw: random.Random
) -> tuple[str, int]:
    """Draw a category by weight (without weights: by remaining tasks), and a band by remaining tasks and tilt."""
    keys = sorted(shelves)
    categories = sorted({category for category, _ in keys})
    left = {c: float(sum(len(shelves[k]) for k in keys if k[0] == c)) for c in categories}
    if weights:
        # A category without a weight comes when nothing else is left.
        left = {c: weights.get(c, 0.0) for c in categories}
        if not any(left.values()):
            left = dict.fromkeys(categories, 1.0)
    (category,) = draw.choices(categories, [left[c] for c in categories])
    bands = [band for c, band in keys if c == category]
    lean = [len(shelves[category, band]) * math.exp(STEEPNESS * tilt * (band / (BANDS - 1) - 0.5)) for band in bands]
    (band,) = draw.choices(bands, lean)
    return category, band


def hardness_of(candidates: Sequence[Candidate], config: CurriculumConfig) -> dict[int, float]:
    """Hardness of each measured candidate, from 0 (always solved) to 1. With `effort`, turns and thinking tokens count
    by their rank among the measured ones."""
    measured = [one for one in candidates if one.pass_rate is not None]
    failing = {one.key: 1.0 - (one.pass_rate or 0.0) for one in measured}
    if config.difficulty == "pass_rate":
        return failing
    turns = _ranks({one.key: one.turns for one in measured})
    thinking = _ranks({one.key: one.thinking_tokens for one in measured})
    return {key: (failing[key] + turns[key] + thinking[key]) / 3 for key in failing}


def _ranks(values: dict[int, float]) -> dict[int, float]:
    """Share of the values that are smaller, by key."""
    ordered = sorted(values.values())
    return {key: bisect.bisect_left(ordered, value) / max(1, len(ordered) - 1) for key, value in values.items()}


def _band(hardness: float | None) -> int:
    """Band 0 for the easiest tasks, BANDS - 1 for the hardest, the middle for unmeasured ones."""
    return BANDS // 2 if hardness is None else min(BANDS - 1, int(hardness * BANDS))
