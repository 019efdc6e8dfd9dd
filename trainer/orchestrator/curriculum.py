"""Curriculum: orders a suite's tasks for a run by difficulty, harder ones later, with a mix of categories.

The order is deterministic in its arguments, and each task occurs at most once. The caller keeps to a single epoch; the
database and the trainer reject a repeated task.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import CurriculumConfig

BANDS = 5
"""Number of pass-rate bands; tasks in one band count as equally hard."""
STEEPNESS = 6.0


@dataclass(frozen=True, slots=True)
class Candidate:
    key: int
    category: str = ""
    pass_rate: float | None = None
    """Pass rate in a pre-pass; None when not measured."""


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
    ones at the
    last.
    """
    pool = admitted(candidates, config)
    weights = config.weights
    if not config.easy_to_hard and not weights:
        return [one.key for one in pool]
    draw = random.Random(f"sampler:{seed}")
    shelves: dict[tuple[str, int], list[int]] = {}
    for one in pool:
        shelves.setdefault((one.category, _band(one.pass_rate)), []).append(one.key)
    for shelf in shelves.values():
        shelf.reverse()  # taken from the end
    order: list[int] = []
    while shelves:
        progress = min(1.0, len(order) / max(1, prompts - 1))
        chosen = _choose(shelves, weights, config.easy_to_hard * (2.0 * progress - 1.0), draw)
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


def _band(pass_rate: float | None) -> int:
    """Band 0 for tasks always solved, BANDS - 1 for tasks never solved, the middle for unmeasured ones."""
    return BANDS // 2 if pass_rate is None else min(BANDS - 1, int((1.0 - pass_rate) * BANDS))
