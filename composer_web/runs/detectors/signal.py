"""Conditions of the learning signal: zero-advantage groups, tool calls, entropy, mismatch, truncation, saturation.

Each is a function of a run's points; it returns what was measured, or None while all is well or too little is known. The
thresholds are ours: no published recipe names any.
"""

from __future__ import annotations

from composer_web.runs.detectors.series import RunSeries

ZERO_ADVANTAGE = 0.7
ENTROPY_SHARE = 0.3
MIN_FIRST_ENTROPY = 0.02
"""Entropies that are lower from the start (nats/token) say nothing by their fall."""
MISMATCH_FACTOR = 3.0
MISMATCH_FLOOR = 1e-3
TRUNCATED = 0.3
SOLVED = 0.8


def zero_advantage(series: RunSeries) -> str | None:
    """Most groups have equal rewards, so their advantages are 0 and the step learns from the few others."""
    share = series.recent_mean("groups/zero_signal")
    if share is None or share < ZERO_ADVANTAGE or saturated(series):  # the second is the cause of the first
        return None
    return f"{share:.0%} of the groups of {_steps(series, 'groups/zero_signal')} have equal rewards and teach nothing"


def no_calls(series: RunSeries) -> str | None:
    """The policy calls no tool, so no rollout can change a file: often the chat template does not show the tools."""
    calls = series.recent_mean("calls/mean")
    return None if calls is None or calls > 0 else f"the policy called no tool in {_steps(series, 'calls/mean')}"


def entropy_collapse(series: RunSeries) -> str | None:
    """Entropy fell to a fraction of what it was at first: the policy no longer explores."""
    found = series.first_and_last("policy/entropy")
    if found is None or found[0] < MIN_FIRST_ENTROPY or found[1] >= ENTROPY_SHARE * found[0]:
        return None
    return f"entropy fell from {found[0]:.3g} to {found[1]:.3g} nats/token: rollouts of a group grow alike"


def rising_mismatch(series: RunSeries) -> str | None:
    """Sampler and trainer disagree more and more about the same tokens: gradients become biased."""
    found = series.first_and_last("mismatch/k3_mean")
    if found is None or found[1] < MISMATCH_FLOOR or found[1] < MISMATCH_FACTOR * found[0]:
        return None
    return f"mismatch k3 rose from {found[0]:.2g} to {found[1]:.2g} nats"


def truncated(series: RunSeries) -> str | None:
    """Many rollouts end at a turn, token or time limit before they can be judged by their work."""
    share = series.recent_mean("truncated")
    if share is None or share < TRUNCATED:
        return None
    return f"{share:.0%} of the rollouts of {_steps(series, 'truncated')} end at a limit"


def saturated(series: RunSeries) -> str | None:
    """Nearly all groups are solved by every rollout: the tasks are too easy to learn more from."""
    share = series.recent_mean("groups/solved_all")
    if share is None or share < SOLVED:
        return None
    return f"{share:.0%} of the groups of {_steps(series, 'groups/solved_all')} are solved by every rollout"


def _steps(series: RunSeries, metric: str) -> str:
    count = len(series.recent(metric))
    return f"the last {count} steps" if count > 1 else "the last step"
