"""Charts at the top of a run page, by kind of run.

Names, units and meanings come from `trainer.learning.metrics`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from composer_web.core.errors import UserError
from composer_web.ui.texts.glossary import sentence
from trainer.learning.metrics import METRICS, Metric, describe

MAX_MEMBERS = 6
"""Maximum number of lines of one family in a panel: those with the largest values."""
NEAREST = 3
"""Names that a refused metric is answered with."""
MAX_NAMED = 4
"""Series that the help of a chart names together."""


@dataclass(frozen=True)
class Panel:
    title: str
    keys: tuple[str, ...]
    labels: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    """Series of another unit, on a separate axis on the right."""
    right_labels: tuple[str, ...] = ()
    right_title: str = ""
    """Titles of those series in a panel of their own."""
    families: tuple[str, ...] = ()
    alone: bool = False
    """A family of one member is drawn, too, and its lines are named with their family."""
    """Prefixes whose members are drawn too where a run has several of them: `reward/source/`."""
    instead: bool = False
    """Members replace `keys`."""
    markers: bool = False
    """For few, distant values such as evaluations: draw points joined by a line."""
    size: int = 1
    """Columns of the grid that it spans."""
    height: int = 1
    pinned: bool = False
    section: str = ""

    @property
    def unit(self) -> str:
        return _unit(self.keys[0])

    @property
    def right_unit(self) -> str:
        return _unit(self.right[0]) if self.right else ""

    @property
    def shown(self) -> tuple[str, ...]:
        """All metrics in the panel."""
        return self.keys + self.right

    @property
    def spec(self) -> str:
        """The panel as a layout keeps it, for js/charts/grid.js."""
        kept = {
            "title": self.title,
            "keys": self.shown,
            "size": self.size,
            "height": self.height,
            "pinned": self.pinned,
            "section": self.section,
        }
        return json.dumps(kept)

    @property
    def series(self) -> str:
        """Series for js/chart.js: [{key, label}], with `right` for those on the second axis."""
        left = zip(self.keys, self.labels or _last_words(self.keys), strict=True)
        right = zip(self.right, self.right_labels or _last_words(self.right), strict=True)
        return json.dumps(
            [{"key": key, "label": label} for key, label in left]
            + [{"key": key, "label": label, "right": True} for key, label in right]
        )

    @property
    def meaning(self) -> str:
        """Of all series, where they share one; see `meanings`."""
        return sentence(definition(self.keys[0]).meaning)

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """(labels, meaning) of all series, in their order; empty where one meaning holds for all. Members of a family share
        theirs."""
        labels = [*(self.labels or _last_words(self.keys)), *(self.right_labels or _last_words(self.right))]
        found: dict[str, list[str]] = {}
        for key, label in zip(self.shown, labels, strict=True):
            if text := sentence(definition(key).meaning):
                found.setdefault(text, []).append(label)
        if len(found) < 2:
            return []
        return [(", ".join(mine[:MAX_NAMED]) + ", …" * (len(mine) > MAX_NAMED), text) for text, mine in found.items()]

    def of_run(self, recorded: Mapping[str, float]) -> Panel:
        """The panel with the family members that the run has recorded."""
        members = [(prefix, name) for prefix in self.families for name in _members(prefix, recorded, self.alone)]
        if not members:
            return self
        labels = [name.removeprefix(prefix) for prefix, name in members]
        if self.alone:
            labels = [f"{_last_words([prefix.rstrip('/')])[0]} {name.removeprefix(prefix)}" for prefix, name in members]
        if len(self.families) > 1:
            labels = [
                f"{_last_words([prefix.rstrip('/')])[0]}, {label}"
                for (prefix, _), label in zip(members, labels, strict=True)
            ]
        kept = ((), ()) if self.instead else (self.keys, self.labels)
        return replace(self, keys=(*kept[0], *(name for _, name in members)), labels=(*kept[1], *labels))

    def apart(self) -> list[Panel]:
        """One panel per axis. With overlaid runs, the line style identifies the metric."""
        left = replace(self, right=(), right_labels=(), right_title="")
        if not self.right:
            return [left]
        return [left, Panel(self.right_title or definition(self.right[0]).title, self.right, self.right_labels)]


def _unit(key: str) -> str:
    unit = definition(key).unit
    return "%" if unit == "share" else unit


def _last_words(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(key.rpartition("/")[2].replace("_", " ") for key in keys)


def _members(prefix: str, recorded: Mapping[str, float], alone: bool) -> list[str]:
    """Recorded members of a family. Empty for a single member, which repeats the total, unless `alone` is set."""
    found = [name for name in recorded if name.startswith(prefix)]
    found.sort(key=lambda name: (-recorded[name], name))
    return sorted(found[:MAX_MEMBERS]) if len(found) > 1 or alone else []


def definition(key: str) -> Metric:
    """Definition from the metric table. A run may contain names that this version no longer defines."""
    try:
        return describe(key)
    except KeyError:
        return Metric(key, "", "")


def check_keys(keys: Iterable[str], recorded: Iterable[str]) -> None:
    """Raises UserError for a metric that is neither recorded nor defined, with the nearest names."""
    known = {*recorded, *(name for name in METRICS if not name.endswith("/"))}
    unknown = next((key for key in keys if key not in known), None)
    if unknown is not None:
        near = get_close_matches(unknown, sorted(known), n=NEAREST, cutoff=0.4)
        remedy = f"nearest: {', '.join(near)}" if near else "choose one of the list"
        raise UserError("keys", f"there is no metric {unknown!r}; {remedy}")


RL = (
    Panel("Reward", ("reward/mean", "reward/best_of_k"), ("mean", "best of K"), families=("reward/source/",)),
    Panel("Held-out evaluation", ("eval/pass1",), ("pass@1",), families=("eval/best_of/",), alone=True, markers=True),
    Panel(
        "Zero-advantage groups",
        ("groups/zero_signal", "groups/solved_none", "groups/solved_all"),
        ("zero advantage", "none solved", "all solved"),
    ),
    Panel(
        "Truncated rollouts",
        ("stop/turn_limit", "stop/token_limit", "stop/time_limit", "stop/malformed_call", "stop/no_tool_call"),
        ("turns", "tokens", "time", "malformed call", "no call"),
        right=("infra/retries",),
        right_labels=("infra errors",),
    ),
    Panel(
        "Mismatch k3",
        ("mismatch/k3_mean", "mismatch/k3_p99"),
        ("mean", "p99"),
        right=("correction/ess", "correction/masked_share"),
        right_labels=("effective samples", "masked"),
        right_title="Importance weights",
    ),
    Panel(
        "Entropy and gradient norm",
        ("policy/entropy",),
        ("entropy",),
        right=("optim/grad_norm",),
        right_labels=("gradient norm",),
    ),
    Panel(
        "Staleness",
        ("staleness/mean", "staleness/max"),
        ("mean", "max"),
        right=("groups/dropped",),
        right_labels=("groups dropped",),
    ),
    Panel(
        "Throughput and idle time",
        ("speed/generate_tokens", "speed/train_tokens"),
        ("generation", "training"),
        right=("idle/trainer", "idle/rollouts", "speed/mfu"),
        right_labels=("trainer idle", "inference idle", "MFU"),
        right_title="Idle shares and MFU",
    ),
    Panel(
        "KV cache",
        ("cache/used", "cache/used_min", "cache/prefix_hits", "cache/prefix_hits_min", "cache/prefix_hits_max"),
        ("used, fullest", "used, emptiest", "prefix hits", "hits, least", "hits, most"),
        right=("cache/preemptions", "cache/preemptions_max"),
        right_labels=("pre-emptions", "pre-emptions, most"),
        right_title="Pre-emptions",
    ),
    Panel(
        "Weight sync",
        ("sync/fetch", "sync/pause", "sync/apply"),
        ("fetch", "pause", "apply"),
        families=("sync/fetch/", "sync/pause/", "sync/apply/"),
        instead=True,
    ),
    Panel(
        "Weights sent",
        ("sync/bytes",),
        ("fetched",),
        right=("weights/changed",),
        right_labels=("weights changed",),
    ),
    Panel(
        "Length by outcome",
        ("tokens/total/passed", "tokens/total/failed"),
        ("tokens, passed", "tokens, failed"),
        right=("turns/passed", "turns/failed"),
        right_labels=("turns, passed", "turns, failed"),
        right_title="Turns by outcome",
    ),
)
"""Twelve: more of them hide those that matter. Each answers one question, if need be with two axes."""
RL_FURTHER = (
    Panel(
        "Step time",
        ("time/step", "time/wait_for_batch", "time/forward_backward"),
        ("step", "waiting", "forward + backward"),
    ),
    Panel(
        "Ratios at the edge",
        ("correction/clipped_share", "truncated"),
        ("clipped tokens", "truncated rollouts"),
    ),
    Panel(
        "Groups since the start",
        ("groups/dispatched", "groups/accepted"),
        ("dispatched", "accepted"),
    ),
    Panel(
        "Groups out",
        ("groups/in_flight", "groups/surplus", "concurrency/limit"),
        ("in flight", "ready", "allowed in flight"),
    ),
    Panel("Tokens of a rollout", ("tokens/policy", "tokens/total"), ("policy", "context")),
    Panel("Turns and calls", ("turns/mean", "calls/mean"), ("turns", "tool calls")),
    Panel("Policy tokens by outcome", ("tokens/policy/passed", "tokens/policy/failed"), ("passed", "failed")),
    Panel("Staleness of groups", ("staleness/p50", "staleness/p90"), ("median", "90 %")),
    Panel("Draft tokens accepted", ("heads/accepted", "speculation/accepted"), ("of the head", "in the engines")),
)
"""Behind the search, but still several lines in one chart."""
SUPERVISED = (
    Panel("Loss", ("loss/train", "loss/heldout"), ("training", "held out")),
    Panel("Learning rate", ("optim/learning_rate",)),
    Panel("Gradient norm", ("optim/grad_norm",)),
    Panel("Training speed", ("speed/train_tokens",), ("tokens",), right=("speed/mfu",), right_labels=("MFU",)),
    Panel("Step time", ("time/step",)),
    Panel("Trainer memory", ("memory/trainer",)),
)


def headline(kind: str, recorded: Mapping[str, float] | None = None) -> list[Panel]:
    """Panels at the top of a run page, with the recorded members of each panel's families."""
    return [panel.of_run(recorded or {}) for panel in (RL if kind == "rl" else SUPERVISED)]


def overlaid(kinds: Iterable[str]) -> list[Panel]:
    """Panels for runs of these kinds on one page: no duplicates, one axis per panel."""
    return list(dict.fromkeys(alone for kind in kinds for panel in headline(kind) for alone in panel.apart()))


def further(shown: Iterable[Panel], kinds: Sequence[str], recorded: Iterable[str]) -> list[Panel]:
    """Panels for recorded metrics that `shown` does not include."""
    known = {key for panel in shown for key in panel.shown}
    rest = [key for key in sorted(recorded) if key not in known]
    joined = [panel for panel in RL_FURTHER if "rl" in kinds and any(key in rest for key in panel.keys)]
    taken = {key for panel in joined for key in panel.keys}
    return [*joined, *(Panel(definition(key).title, (key,)) for key in rest if key not in taken)]
