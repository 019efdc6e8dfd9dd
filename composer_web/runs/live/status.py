"""Figures at the top of a run page."""

from __future__ import annotations

from collections.abc import Mapping

from composer_web.rollouts import selectors as rollouts
from composer_web.runs.models import Run
from composer_web.ui.pages import Figure
from composer_web.ui.templatetags import ui
from trainer.learning.metrics import describe


def figures(run: Run) -> list[Figure]:
    """Latest values of the headline metrics. A dash marks a value not measured yet."""
    return _rl(run) if run.kind == "rl" else _supervised(run.latest)


def _metric(label: str, value: str, metric: str, unit: str = "", note: str = "") -> Figure:
    """A figure of a metric, with the metric's meaning as its help."""
    meaning = describe(metric).meaning
    return Figure(label, value, unit, note, f"{meaning[:1].upper()}{meaning[1:]}. Metric {metric}.")


def _supervised(latest: Mapping[str, float]) -> list[Figure]:
    return [
        _metric("Training loss", ui.num(latest.get("loss/train")), "loss/train", "nats/token"),
        _metric("Held-out loss", ui.num(latest.get("loss/heldout")), "loss/heldout", "nats/token"),
        _metric("Accuracy", ui.percent(latest.get("loss/accuracy")), "loss/accuracy", note="top-1"),
        _metric("Learning rate", ui.num(latest.get("optim/learning_rate")), "optim/learning_rate"),
        _metric("Training throughput", ui.compact(latest.get("speed/train_tokens")), "speed/train_tokens", "tok/s"),
    ]


def _rl(run: Run) -> list[Figure]:
    latest: Mapping[str, float] = run.latest
    counts = rollouts.verdict_counts(run=run)
    found = rollouts.finding_counts(run=run)
    passed = f"{ui.num(counts['passed'])} passed, {ui.num(counts['failed'])} failed"
    return [
        _metric(
            "Reward",
            ui.num(latest.get("reward/mean")),
            "reward/mean",
            note=f"best of K {ui.num(latest.get('reward/best_of_k'))}",
        ),
        _metric(
            "Held-out pass@1",
            ui.percent(latest.get("eval/pass1")),
            "eval/pass1",
            note=f"best of K {ui.percent(latest.get('eval/best_of_k'))}",
        ),
        _metric(
            "Zero-advantage groups",
            ui.percent(latest.get("groups/zero_signal"), 0),
            "groups/zero_signal",
            note="of the last step",
        ),
        _metric("Entropy", ui.num(latest.get("policy/entropy")), "policy/entropy", note="nats/token"),
        _metric(
            "Staleness",
            ui.num(latest.get("staleness/mean")),
            "staleness/mean",
            note=f"versions; max {ui.num(latest.get('staleness/max'))}",
        ),
        _metric("Trainer idle", ui.percent(latest.get("idle/trainer")), "idle/trainer", note="waiting for rollouts"),
        _metric("Engine idle", ui.percent(latest.get("idle/rollouts")), "idle/rollouts", note="of wall time"),
        _metric(
            "Generation throughput", ui.compact(latest.get("speed/generate_tokens")), "speed/generate_tokens", "tok/s"
        ),
        _metric("Training throughput", ui.compact(latest.get("speed/train_tokens")), "speed/train_tokens", "tok/s"),
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
