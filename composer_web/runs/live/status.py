"""Figures at the top of a run page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from composer_web.rollouts import selectors as rollouts
from composer_web.runs.models import Run
from composer_web.ui.pages import Figure
from composer_web.ui.templatetags import ui
from trainer.learning.metrics import describe


def figures(run: Run, tones: Mapping[str, str]) -> list[Figure]:
    """Latest values of the headline metrics. A dash marks a value not measured yet. `tones`: by metric."""
    found = _rl(run) if run.kind == "rl" else _supervised(run.latest)
    return [replace(one, tone=tones.get(one.metric, "")) for one in found]


def metric(label: str, name: str, latest: Mapping[str, float], unit: str = "", note: str = "") -> Figure:
    """Newest value of a metric, written as its charts and tables do, with the metric's meaning as its help."""
    known = describe(name)
    value = ui.quantity(latest.get(name), known.unit)
    meaning = f"{known.meaning[:1].upper()}{known.meaning[1:]}. Metric {name}."
    return Figure(label, value, unit, note, meaning, metric=name)


def _supervised(latest: Mapping[str, float]) -> list[Figure]:
    return [
        metric("Training loss", "loss/train", latest, "nats/token"),
        metric("Held-out loss", "loss/heldout", latest, "nats/token"),
        metric("Accuracy", "loss/accuracy", latest, note="top-1"),
        metric("Learning rate", "optim/learning_rate", latest),
        metric("Training throughput", "speed/train_tokens", latest, "tok/s"),
    ]


def _rl(run: Run) -> list[Figure]:
    latest: Mapping[str, float] = run.latest
    stage = run.config.get("stage", {})
    counts = rollouts.verdict_counts(run=run)
    found = rollouts.finding_counts(run=run)
    passed = f"{ui.num(counts['passed'])} passed, {ui.num(counts['failed'])} failed"
    return [
        metric(
            "Reward",
            "reward/mean",
            latest,
            note=f"best of {stage.get('group_size', 'K')}: {ui.num(latest.get('reward/best_of_k'))}",
        ),
        metric(
            "Held-out pass@1",
            "eval/pass1",
            latest,
            note=f"best of {stage.get('eval_samples', 'K')}: {ui.percent(latest.get('eval/best_of_k'))}",
        ),
        metric(
            "Zero-advantage groups",
            "groups/zero_signal",
            latest,
            note="of the last step",
        ),
        metric("Entropy", "policy/entropy", latest, note="nats/token"),
        metric(
            "Staleness",
            "staleness/mean",
            latest,
            note=f"versions; max {ui.num(latest.get('staleness/max'))}",
        ),
        metric("Trainer idle", "idle/trainer", latest, note="waiting for rollouts"),
        metric("Engine idle", "idle/rollouts", latest, note="of wall time"),
        metric("Generation throughput", "speed/generate_tokens", latest, "tok/s"),
        metric("Training throughput", "speed/train_tokens", latest, "tok/s"),
        Figure(
            "Rollouts",
            ui.num(counts["dispatched"]),
            note=passed,
            help="Dispatched rollouts and their verdicts.",
        ),
        Figure(
            "Infra errors",
            ui.num(counts["infra_error"]),
            note="never trained on",
            help="Infra errors: sandbox, engine or network. They are missing data, are run again, and "
            "never become a reward.",
        ),
        Figure(
            "Findings",
            ui.num(found["high"] + found["medium"] + found["low"]),
            note=f"{ui.num(found['high'])} high, {ui.num(found['quarantined'])} quarantined",
            help="Rollouts that the auditor or a monitor marked, such as a likely reward hack.",
        ),
    ]
