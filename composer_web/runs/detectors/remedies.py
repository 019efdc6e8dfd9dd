"""What to do about a condition, where that depends on what else was measured."""

from __future__ import annotations

from composer_web.runs.detectors.series import RunSeries
from composer_web.runs.detectors.signal import TRUNCATED, ZERO_ADVANTAGE

LIMITS = {
    "stop/token_limit": "sampling.max_context_tokens or max_turn_tokens, or let the policy summarize "
    "(harness.summary.trigger_share)",
    "stop/turn_limit": "sampling.max_turns",
    "stop/time_limit": "sampling.episode_seconds",
}
"""Stop reason → what to raise."""
SIGNAL = ("groups/zero_signal", "calls/mean", "truncated", "groups/solved_none", *LIMITS)
"""Metrics that `signal` reads."""


def signal(series: RunSeries) -> str:
    """For groups with equal rewards: why they are equal decides."""
    if series.recent_mean("calls/mean") == 0:
        return "Run SFT on demonstrations first, or choose a model with a chat template that shows tools."
    if (series.recent_mean("truncated") or 0) >= TRUNCATED:
        return f"Many rollouts are cut off: raise {_limit(series)}."
    if (series.recent_mean("groups/solved_none") or 0) >= ZERO_ADVANTAGE:
        return (
            "The tasks are too hard: run SFT first, choose easier ones (curriculum.min_pass_rate, drop_solved_none), raise "
            "group_size, or add a reward for behaviour."
        )
    return "Choose harder tasks (curriculum.max_pass_rate, drop_solved_all), raise group_size or the temperature."


def limits(series: RunSeries) -> str:
    return f"Raise {_limit(series)}, in a new run."


def _limit(series: RunSeries) -> str:
    """What to raise for the most frequent limit."""
    return LIMITS[max(LIMITS, key=lambda one: series.recent_mean(one) or 0.0)]
