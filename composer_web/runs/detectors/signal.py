"""Conditions of the learning signal: zero-advantage groups, entropy, train–inference mismatch, truncation, saturation.

Each is a function of a run's last points; it returns what was measured, or None while all is well or too little is known. The
thresholds are ours: no published recipe names any.
"""

from __future__ import annotations

from composer_web.runs.detectors.series import RunSeries, mean

RECENT = 8
"""Steps whose mean is judged."""
MIN = 4
"""Fewer points say nothing."""
FIRST = 8
"""Steps at the beginning of the window that later ones are compared with."""

ZERO_ADVANTAGE = 0.7
ENTROPY_SHARE = 0.3
ENTROPY_FLOOR = 0.01
MISMATCH_FACTOR = 3.0
MISMATCH_FLOOR = 1e-3
TRUNCATED = 0.3
SOLVED = 0.8


def zero_advantage(series: RunSeries) -> str | None:
    """Most groups have equal rewards, so their advantages are 0 and the step learns from the few others."""
    recent = series.last("groups/zero_signal", RECENT)
    if len(recent) < MIN or mean(recent) < ZERO_ADVANTAGE:
        return None
    return f"{mean(recent):.0%} of the groups of the last {len(recent)} steps have equal rewards and teach nothing"


def entropy_collapse(series: RunSeries) -> str | None:
    """Entropy fell to a fraction of what it was: the policy no longer explores."""
    points = series.values.get("policy/entropy", [])
    if len(points) < FIRST + MIN:
        return None
    before, now = mean(points[:FIRST]), mean(points[-MIN:])
    if now >= ENTROPY_SHARE * before and now >= ENTROPY_FLOOR:
        return None
    return f"entropy fell from {before:.3g} to {now:.3g} nats/token"


def rising_mismatch(series: RunSeries) -> str | None:
    """Sampler and trainer disagree more and more about the same tokens: gradients become biased."""
    points = series.values.get("mismatch/k3_mean", [])
    if len(points) < FIRST + MIN:
        return None
    before, now = mean(points[:FIRST]), mean(points[-MIN:])
    if now < MISMATCH_FLOOR or now < MISMATCH_FACTOR * before:
        return None
    return f"mismatch k3 rose from {before:.2g} to {now:.2g} nats"


def truncated(series: RunSeries) -> str | None:
    """Many rollouts end at a turn, token or time limit before they can be judged by their work."""
    recent = series.last("truncated", RECENT)
    if len(recent) < MIN or mean(recent) < TRUNCATED:
        return None
    return f"{mean(recent):.0%} of the rollouts of the last {len(recent)} steps end at a limit"


def saturated(series: RunSeries) -> str | None:
    """Nearly all groups are solved by every rollout: the tasks are too easy to learn more from."""
    recent = series.last("groups/solved_all", RECENT)
    if len(recent) < MIN or mean(recent) < SOLVED:
        return None
    return f"{mean(recent):.0%} of the groups of the last {len(recent)} steps are solved by every rollout"
