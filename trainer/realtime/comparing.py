"""What two versions show in use, side by side: one measure with its bound, and whether it holds beyond chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

Unit = Literal["share", "points", "ms"]
Standing = Literal["holds", "broken", "little", "unbound"]
"""`little`: too few observations, or beyond the bound but not beyond chance. `unbound`: shown, and nothing ends for it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One side of a measure: its value, the standard error of that, and of how many observations. None: of nothing."""

    value: float | None
    error: float
    count: int

    @classmethod
    def share(cls, value: float, count: int) -> Sample:
        if not count:
            return cls(None, 0.0, 0)
        return cls(value, math.sqrt(value * (1 - value) / count), count)

    @classmethod
    def mean(cls, values: Sequence[float]) -> Sample:
        count = len(values)
        if not count:
            return cls(None, 0.0, 0)
        value = math.fsum(values) / count
        spread = math.fsum((one - value) ** 2 for one in values) / max(1, count - 1)
        return cls(value, math.sqrt(spread / count), count)

    @classmethod
    def median(cls, values: Sequence[float]) -> Sample:
        """Its error is half the distance of the order statistics one binomial deviation (√n / 2 places) to either side:
        times have long tails, and this asks nothing of how they are distributed."""
        count, ordered = len(values), sorted(values)
        if not count:
            return cls(None, 0.0, 0)
        value = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        away = math.sqrt(count) / 2
        low, high = max(0, math.floor((count - 1) / 2 - away)), min(count - 1, math.ceil((count - 1) / 2 + away))
        return cls(value, (ordered[high] - ordered[low]) / 2, count)


class Row(BaseModel):
    """A measure of both sides. `moved` counts in the bad direction; `margin` is how much of that may be chance."""

    model_config = ConfigDict(frozen=True)

    name: str
    unit: Unit
    before: float | None
    now: float | None
    before_count: int
    now_count: int
    min_count: int
    falls: bool
    bound: float | None
    relative: bool
    moved: float | None
    margin: float | None
    standing: Standing
    why: str
    """In words, when the bound is broken; else empty."""

    @property
    def change(self) -> float | None:
        return None if self.before is None or self.now is None else self.now - self.before

    @property
    def few(self) -> bool:
        """Whether it is too little to say because there are too few observations, not because of chance."""
        return min(self.before_count, self.now_count) < self.min_count


def compared(
    name: str,
    before: Sample,
    now: Sample,
    *,
    falls: bool,
    bound: float | None,
    deviations: float,
    min_count: int,
    unit: Unit = "share",
    relative: bool = False,
) -> Row:
    """`falls`: a fall is what is bad. `relative`: the bound is a share of what was before. A measure breaks its bound when
    it moved further than that and further than `deviations` standard errors of the difference."""
    moved = margin = None
    standing: Standing = "little"
    if before.value is not None and now.value is not None:
        moved = (before.value - now.value) if falls else (now.value - before.value)
        margin = deviations * math.hypot(before.error, now.error)
        if min(before.count, now.count) >= max(2, min_count) and bound is not None:  # one alone says nothing of chance
            allowed = bound * abs(before.value) if relative else bound
            standing = "holds" if moved <= allowed else "broken" if moved > margin else "little"
    if bound is None:
        standing = "unbound"
    why = ""
    if standing == "broken":
        assert before.value is not None and now.value is not None and bound is not None
        allowed_text = f"{bound:.0%} are allowed" if unit == "share" or relative else f"{bound:.3g} is allowed"
        verb = "fell" if falls else "rose"
        why = f"{name} {verb} from {_said(before.value, unit)} to {_said(now.value, unit)}; {allowed_text}"
    return Row(
        name=name,
        unit=unit,
        before=before.value,
        now=now.value,
        before_count=before.count,
        now_count=now.count,
        min_count=min_count,
        falls=falls,
        bound=bound,
        relative=relative,
        moved=moved,
        margin=margin,
        standing=standing,
        why=why,
    )


def _said(value: float, unit: Unit) -> str:
    return {"share": f"{value:.1%}", "points": f"{value:.3f}", "ms": f"{value:.0f} ms"}[unit]
