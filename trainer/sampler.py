"""In which order a run uses the tasks of its suite: by difficulty, harder ones later, categories in a mix.

Deterministic in its arguments. Each task comes at most once: single epoch is kept by whoever takes the order, and the
database and the trainer refuse a second time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import SamplerConfig

BANDS = 5
"""Bands of pass rate in which tasks count as equally hard."""
STEEPNESS = 6.0


@dataclass(frozen=True, slots=True)
class Candidate:
    key: int
    category: str = ""
    pass_rate: float | None = None
    """Of a pre-pass; None when nobody measured it."""


def admitted(candidates: Sequence[Candidate], config: SamplerConfig) -> list[Candidate]:
    """Those in the window of difficulty, in the order in which they came."""
    found = []
    for one in candidates:
        if one.pass_rate is None:
            keep = config.unmeasured == "use"
        else:
            keep = config.easiest >= one.pass_rate >= config.hardest
            keep = keep and not (config.drop_solved_all and one.pass_rate >= 1.0)
            keep = keep and not (config.drop_solved_none and one.pass_rate <= 0.0)
        if keep:
            found.append(one)
    return found


def arrange(candidates: Sequence[Candidate], config: SamplerConfig, *, prompts: int, seed: str) -> list[int]:
    """Keys in the order of use. `candidates` come shuffled; a neutral configuration leaves them as they are.

    `prompts` is how many the run needs: at the first the easier are `harder_later` more likely, at the last the harder.
    """
    pool = admitted(candidates, config)
    weights = config.weights
    if not config.harder_later and not weights:
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
        chosen = _choose(shelves, weights, config.harder_later * (2.0 * progress - 1.0), draw)
        order.append(shelves[chosen].pop())
        if not shelves[chosen]:
            del shelves[chosen]
    return order


def _choose(
    shelves: dict[tuple[str, int], list[int]], weights: dict[str, float], tilt: float, draw: random.Random
) -> tuple[str, int]:
    """A shelf: the category by its weight (by what is left, without weights), the band by what is left and the tilt."""
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
    """0 for what is always solved, BANDS - 1 for what never is; in the middle what nobody measured."""
    return BANDS // 2 if pass_rate is None else min(BANDS - 1, int((1.0 - pass_rate) * BANDS))
