"""Which charts a run page shows first, by kind of run.

Names, units and meanings come from `trainer.learning.metrics`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainer.learning.metrics import Metric, describe

DASHES = ("solid", "dotted", "dashed", "dash-dotted")
"""As js/chart.js draws the series of a panel that shows several runs."""


@dataclass(frozen=True)
class Panel:
    title: str
    keys: tuple[str, ...]
    labels: tuple[str, ...] = ()
    markers: bool = False
    """Few points far apart (evaluations): draw them as points joined by a line."""

    @property
    def unit(self) -> str:
        unit = definition(self.keys[0]).unit
        return "%" if unit == "share" else unit

    @property
    def series(self) -> str:
        """What js/chart.js draws: [{key, label}]."""
        labels = self.labels or tuple(key.rpartition("/")[2].replace("_", " ") for key in self.keys)
        return json.dumps([{"key": key, "label": label} for key, label in zip(self.keys, labels, strict=True)])

    @property
    def dashes(self) -> str:
        """Which dash means what when runs are laid over each other; empty for a single line."""
        return ", ".join(f"{dash}: {label}" for dash, label in zip(DASHES, self.labels, strict=False))

    @property
    def meaning(self) -> str:
        return definition(self.keys[0]).meaning


def definition(key: str) -> Metric:
    """What the table of metrics says; a run may hold names that this version no longer defines."""
    try:
        return describe(key)
    except KeyError:
        return Metric(key, "", "")


RL = (
    Panel("Reward", ("reward/mean", "reward/best_of_k"), ("mean", "best of K")),
    Panel("Held-out evaluation", ("eval/pass1", "eval/best_of_k"), ("pass@1", "best of K"), markers=True),
    Panel("Groups", ("groups/solved_none", "groups/solved_some", "groups/solved_all"), ("none solved", "some", "all")),
    Panel("Entropy", ("policy/entropy",)),
    Panel("Staleness", ("staleness/mean", "staleness/p90", "staleness/max"), ("mean", "90 %", "max")),
    Panel("Sampler–trainer mismatch k3", ("mismatch/k3_mean", "mismatch/k3_p99"), ("mean", "p99")),
    Panel("Gradient norm", ("optim/grad_norm",)),
    Panel("Idle shares", ("idle/trainer", "idle/rollouts"), ("trainer", "inference")),
    Panel("Speed", ("speed/generate_tokens", "speed/train_tokens"), ("generated", "trained")),
    Panel(
        "Ends without finishing",
        ("stop/turn_limit", "stop/token_limit", "stop/time_limit", "stop/malformed_call", "stop/no_tool_call"),
        ("turns", "tokens", "time", "broken call", "no call"),
    ),
    Panel("Tokens of a rollout", ("tokens/policy", "tokens/total"), ("policy", "context")),
    Panel("Weight sync", ("sync/fetch", "sync/decode", "sync/pause"), ("fetch", "decode", "pause")),
)
"""Twelve: more of them hide those that matter."""
RL_FURTHER = (
    Panel(
        "Step time",
        ("time/step", "time/wait_for_batch", "time/forward_backward"),
        ("step", "waiting", "forward + backward"),
    ),
    Panel(
        "Importance weights",
        ("correction/ess", "correction/masked_share", "correction/clipped_share"),
        ("effective samples", "masked", "clipped"),
    ),
    Panel(
        "Groups since the start",
        ("groups/dispatched", "groups/accepted", "groups/dropped"),
        ("dispatched", "accepted", "dropped"),
    ),
    Panel(
        "Groups out",
        ("groups/in_flight", "groups/surplus", "concurrency/limit"),
        ("in flight", "ready", "allowed in flight"),
    ),
    Panel("Turns and calls", ("turns/mean", "calls/mean"), ("turns", "tool calls")),
    Panel("Policy tokens by outcome", ("tokens/policy/passed", "tokens/policy/failed"), ("passed", "failed")),
    Panel("Context tokens by outcome", ("tokens/total/passed", "tokens/total/failed"), ("passed", "failed")),
    Panel("Turns by outcome", ("turns/passed", "turns/failed"), ("passed", "failed")),
)
"""Behind the search, but still several lines in one chart."""
SUPERVISED = (
    Panel("Loss", ("loss/train", "loss/heldout"), ("training", "held out")),
    Panel("Learning rate", ("optim/learning_rate",)),
    Panel("Gradient norm", ("optim/grad_norm",)),
    Panel("Training speed", ("speed/train_tokens",)),
    Panel("Step time", ("time/step",)),
)


def headline(kind: str) -> tuple[Panel, ...]:
    return RL if kind == "rl" else SUPERVISED


def overlaid(kinds: Iterable[str]) -> list[Panel]:
    """Panels for runs of these kinds in one page, without repeats."""
    return list(dict.fromkeys(panel for kind in kinds for panel in headline(kind)))


def further(kinds: Sequence[str], recorded: Iterable[str]) -> list[Panel]:
    """Panels for each recorded metric that no headline chart shows."""
    shown = {key for panel in overlaid(kinds) for key in panel.keys}
    rest = [key for key in sorted(recorded) if key not in shown]
    joined = [panel for panel in RL_FURTHER if "rl" in kinds and any(key in rest for key in panel.keys)]
    taken = {key for panel in joined for key in panel.keys}
    return [*joined, *(Panel(definition(key).title, (key,)) for key in rest if key not in taken)]
