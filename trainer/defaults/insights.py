"""Reasons why a running RL run learns little, from its metrics, each with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from trainer.config import RLConfig

WINDOW = 3
"""Steps that a rule looks at. One odd step is no trend."""
ZERO_SIGNAL_SHARE = 0.8
SATURATED_SHARE = 0.7
TRUNCATED_SHARE = 0.5
COLLAPSED_SHARE = 0.3
"""Share of its first entropy below which a policy's entropy has collapsed."""
MIN_FIRST_ENTROPY = 0.02
"""Entropies that are lower from the start (nat/token) say nothing by their fall."""
METRICS = (
    "groups/zero_signal",
    "groups/solved_none",
    "groups/solved_all",
    "truncated",
    "stop/token_limit",
    "stop/turn_limit",
    "stop/time_limit",
    "calls/mean",
    "policy/entropy",
    "optim/grad_norm",
)
"""Metrics that the rules read."""
LIMITS = {
    "stop/token_limit": "sampling.max_context_tokens or max_turn_tokens, or let the policy summarize "
    "(harness.summary.trigger_share)",
    "stop/turn_limit": "sampling.max_turns",
    "stop/time_limit": "sampling.episode_seconds",
}
"""Stop reason → what to raise."""

Steps = Sequence[Mapping[str, float]]
"""Metrics of each step, oldest first."""


@dataclass(frozen=True, slots=True)
class Insight:
    key: str
    level: Literal["warning", "error"]
    message: str
    remedy: str


def insights(steps: Steps, config: RLConfig) -> list[Insight]:
    """What holds in the last steps, most serious first. Empty until `WINDOW` steps are trained.

    `steps` may lack steps between the first and the last `WINDOW`.
    """
    if len(steps) < min(WINDOW, config.steps):
        return []
    found = [insight for rule in RULES if (insight := rule(steps, config)) is not None]
    return sorted(found, key=lambda insight: insight.level != "error")


def untrained(steps: Steps, *, max_grad_norm: float | None) -> Insight | None:
    """A run whose every gradient was zero: its weights are those that it started with. `max_grad_norm` is over all of
    its steps."""
    if max_grad_norm is None or max_grad_norm > 0:
        return None
    why = (
        "no rollout passed" if _last(steps, "groups/solved_none") == 1 else "all rollouts of a group had equal rewards"
    )
    return Insight("untrained", "error", f"nothing was trained: in every step {why}", _signal_remedy(steps))


def _zero_signal(steps: Steps, _config: RLConfig) -> Insight | None:
    share = _last(steps, "groups/zero_signal")
    if share is None or share < ZERO_SIGNAL_SHARE or _saturated(steps, _config):
        return None
    return Insight(
        "zero-signal",
        "error" if share == 1 else "warning",
        f"{share:.0%} of the groups have equal rewards and teach nothing",
        _signal_remedy(steps),
    )


def _signal_remedy(steps: Steps) -> str:
    if _last(steps, "calls/mean") == 0:
        return "the policy calls no tool: run SFT on demonstrations first, or choose a model with a tools template"
    if (_last(steps, "truncated") or 0) >= TRUNCATED_SHARE:
        return f"most rollouts are cut off: raise {_limit(steps)}"
    if (_last(steps, "groups/solved_none") or 0) >= SATURATED_SHARE:
        return (
            "the tasks are too hard: run SFT first, choose easier ones (curriculum.min_pass_rate, drop_solved_none), raise "
            "group_size, or add a reward for behaviour"
        )
    return "choose harder tasks (curriculum.max_pass_rate, drop_solved_all), raise group_size or the temperature"


def _no_calls(steps: Steps, _config: RLConfig) -> Insight | None:
    if _last(steps, "calls/mean") != 0:
        return None
    return Insight(
        "no-calls",
        "error",
        "the policy calls no tool",
        "read a rollout: the chat template may not show the tools; run SFT on demonstrations first",
    )


def _truncated(steps: Steps, _config: RLConfig) -> Insight | None:
    share = _last(steps, "truncated")
    if share is None or share < TRUNCATED_SHARE:
        return None
    return Insight(
        "truncated", "warning", f"{share:.0%} of the rollouts end at a limit", f"raise {_limit(steps)}, in a new run"
    )


def _limit(steps: Steps) -> str:
    """What to raise for the most frequent limit."""
    name = max(LIMITS, key=lambda one: _last(steps, one) or 0.0)
    return LIMITS[name]


def _saturated(steps: Steps, _config: RLConfig) -> Insight | None:
    share = _last(steps, "groups/solved_all")
    if share is None or share < SATURATED_SHARE:
        return None
    return Insight(
        "saturated",
        "warning",
        f"in {share:.0%} of the groups every rollout passes",
        "the tasks are too easy by now: continue on harder ones (curriculum.max_pass_rate, drop_solved_all)",
    )


def _entropy(steps: Steps, _config: RLConfig) -> Insight | None:
    values = [step["policy/entropy"] for step in steps if "policy/entropy" in step]
    if len(values) < 2 * WINDOW:
        return None
    first, last = fsum(values[:WINDOW]) / WINDOW, fsum(values[-WINDOW:]) / WINDOW
    if first < MIN_FIRST_ENTROPY or last > COLLAPSED_SHARE * first:
        return None
    return Insight(
        "entropy-collapse",
        "warning",
        f"entropy fell from {first:.3g} to {last:.3g} nat per token: rollouts of a group grow alike",
        "lower optimizer.learning_rate, raise sampling.temperature or objective.kl_coefficient, and look for gamed rewards",
    )


RULES: tuple[Callable[[Steps, RLConfig], Insight | None], ...] = (
    _no_calls,
    _zero_signal,
    _truncated,
    _saturated,
    _entropy,
)


def _last(steps: Steps, name: str) -> float | None:
    """Mean over the last steps that have the metric; None if none has."""
    values = [step[name] for step in steps[-WINDOW:] if name in step]
    return fsum(values) / len(values) if values else None
