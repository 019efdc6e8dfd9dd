"""Held-out rows of a supervised stage, and their losses by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainer.learning.supervised import Example


@dataclass(slots=True)
class HeldOut:
    """Rows by name of the metric that they are measured under."""

    rows: dict[str, list[Example]] = field(default_factory=dict)

    def losses(self, loss: Callable[[Sequence[Example]], float]) -> dict[str, float]:
        """Mean next-token loss in nats of each, and `loss/heldout` over the tokens of all languages."""
        values: dict[str, float] = {}
        total, count = 0.0, 0.0
        for name, rows in self.rows.items():
            weights = [sum(row.weights[1:]) for row in rows]
            summed, tokens = sum(loss([row]) * weight for row, weight in zip(rows, weights, strict=True)), sum(weights)
            values[name] = summed / tokens
            if name.startswith("loss/language/"):
                total, count = total + summed, count + tokens
        return values | ({"loss/heldout": total / count} if count else {})
