"""The length penalty -λ·C(x): effort costs most on easy tasks and less and less on long ones.

    C(x) = ((1 + k·x)^(1-q) - 1) / (k·(1-q)),    q = 1:  ln(1 + k·x) / k

C(0) = 0, C'(0) = 1, C'(x) = (1 + k·x)^(-q). x is a weighted sum of six kinds of effort (`LengthWeights`).
Source: the published form of Composer 2's reward; k, q, the weights and λ are ours.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from trainer.config import LengthWeights, RewardConfig
from trainer.rewards.parts.base import reward_part
from trainer.types import RewardPart, Trajectory


def length_cost(x: float, *, k: float, q: float) -> float:
    """C(x) for x >= 0, k > 0, q >= 0. Stable through q = 1, where the power form is 0/0."""
    if x < 0 or k <= 0 or q < 0:
        raise ValueError(f"length cost needs x >= 0, k > 0, q >= 0; got x={x}, k={k}, q={q}")
    log = math.log1p(k * x)
    if q == 1.0:
        return log / k
    return math.expm1((1.0 - q) * log) / (k * (1.0 - q))


@dataclass(frozen=True, slots=True)
class LengthInputs:
    """The six inputs of x, for one rollout: tokens by kind, calls, turns."""

    thinking_tokens: int
    calling_tokens: int
    output_tokens: int
    final_tokens: int
    calls: int
    turns: int


def effort(trajectory: Trajectory) -> LengthInputs:
    """Count each token once: a turn's thinking apart, the rest calling (it made calls) or final (it made none).
    A summary for the next context window is thinking and no turn.

    Output tokens are what the policy read after its first turn: tool outputs with their template tokens.
    """
    acting = [turn for turn in trajectory.turns if not turn.summary]
    summaries = sum(turn.token_end - turn.token_start for turn in trajectory.turns if turn.summary)
    thinking = sum(turn.thinking_tokens for turn in acting) + summaries
    calling = sum(t.token_end - t.token_start - t.thinking_tokens for t in acting if t.calls)
    final = sum(t.token_end - t.token_start - t.thinking_tokens for t in acting if not t.calls)
    output = 0
    for segment in trajectory.segments:
        if 1 in segment.loss_mask:
            after = segment.loss_mask[segment.loss_mask.index(1) :]
            output += len(after) - sum(after)
    return LengthInputs(thinking, calling, output, final, sum(len(turn.calls) for turn in acting), len(acting))


def weighted(parts: LengthInputs, weights: LengthWeights) -> float:
    return sum(value * getattr(weights, name) for name, value in asdict(parts).items())


@reward_part("length", version=1)
def length(trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    """-C(x) with weight λ; off (no part) when λ is 0."""
    if config.length_coefficient == 0.0:
        return None
    parts = effort(trajectory)
    x = weighted(parts, config.length_weights)
    cost = length_cost(x, k=config.length_k, q=config.length_q)
    return RewardPart(name="length", value=-cost, weight=config.length_coefficient, detail={"x": x, **asdict(parts)})
