"""Comparison of several runs: differing settings and outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from composer_web.runs.charts.panels import definition
from composer_web.runs.flatten import flat
from composer_web.runs.models import Run
from composer_web.ui.templatetags import ui
from trainer.config import RLConfig

MAX_RUNS = 6
"""Equals the number of colours."""
MAX_GROUPED = 24
"""Runs of which groups are drawn."""

OUTCOMES = (
    "reward/mean",
    "reward/best_of_k",
    "eval/pass1",
    "eval/best_of_k",
    "loss/train",
    "loss/heldout",
    "policy/entropy",
    "staleness/mean",
    "idle/trainer",
    "idle/rollouts",
    "speed/generate_tokens",
    "speed/train_tokens",
)


ALL = "all"
"""Group of every run."""
NOT_GROUPS = frozenset({"name", "seed"})
"""Settings that differ from run to run."""


@dataclass(frozen=True)
class Row:
    label: str
    values: Sequence[str]
    meaning: str = ""
    differs: bool = True

    @property
    def group(self) -> str:
        """Parent path of a row whose name is a dotted path."""
        return self.label.rpartition(".")[0]

    @property
    def key(self) -> str:
        return self.label.rpartition(".")[2]


def differences(configs: Iterable[Mapping[str, Any]], *, everything: bool = False) -> list[Row]:
    """Settings that differ between the configurations, or all settings. A dash marks a setting that a configuration
    lacks."""
    tables = [flat(config) for config in configs]
    paths = dict.fromkeys(path for table in tables for path in table)
    rows = {path: [table.get(path, ...) for table in tables] for path in paths}
    return [
        Row(path, ["–" if value is ... else _shown(value) for value in values], differs=differs)
        for path, values in rows.items()
        if (differs := any(value != values[0] for value in values)) or everything
    ]


def group_choices(runs: Sequence[Run]) -> list[str]:
    """Settings by which the runs fall into groups that fit one chart."""
    rows = [row for row in differences(run.config for run in runs) if row.label not in NOT_GROUPS]
    return [ALL, *(row.label for row in rows if len(set(row.values)) <= MAX_RUNS)]


def groups(runs: Sequence[Run], by: str) -> list[str]:
    """The group of each run: its value of the setting `by`. Empty names for a setting in which they do not differ."""
    if by == ALL:
        return ["all runs"] * len(runs)
    row = next((row for row in differences(run.config for run in runs) if row.label == by), None)
    return [""] * len(runs) if row is None else [f"{row.key} = {value}" for value in row.values]


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return ui.num(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def outcomes(runs: Sequence[Run]) -> list[Row]:
    """Last value of each headline metric that any of the runs has."""
    rows = []
    for key in OUTCOMES:
        if not any(key in run.latest for run in runs):
            continue
        metric = definition(key)
        unit = "" if metric.unit in ("", "share", "s", "bytes") else f", {metric.unit}"
        samples = [best_of(run, key) if key in run.latest else None for run in runs]
        for k in sorted({k for k in samples if k is not None}):
            values = [
                ui.quantity(run.latest.get(key), metric.unit) if mine == k else "–"
                for run, mine in zip(runs, samples, strict=True)
            ]
            rows.append(Row(f"{metric.title}{unit}{f' (K = {k})' if k else ''}", values, metric.meaning))
    return rows


def best_of(run: Run, key: str) -> int:
    """K of a best-of-K metric, whose values compare only for the same K. 0 for other metrics."""
    stage = run.configuration.stage
    if not key.endswith("best_of_k") or not isinstance(stage, RLConfig):
        return 0
    return stage.group_size if key.startswith("reward/") else stage.eval_samples
