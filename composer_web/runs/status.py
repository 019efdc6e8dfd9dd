"""Figures at the top of a run page."""

from __future__ import annotations

from collections.abc import Mapping

from composer_web.rollouts import selectors as rollouts
from composer_web.runs.models import Run
from composer_web.ui.pages import Figure
from composer_web.ui.templatetags import ui


def figures(run: Run) -> list[Figure]:
    """Latest values of the headline metrics. A dash marks a value not measured yet."""
    return _rl(run) if run.kind == "rl" else _supervised(run.latest)


def _supervised(latest: Mapping[str, float]) -> list[Figure]:
    return [
        Figure("Training loss", ui.num(latest.get("loss/train")), "nat/token"),
        Figure("Held-out loss", ui.num(latest.get("loss/heldout")), "nat/token"),
        Figure("Accuracy", ui.percent(latest.get("loss/accuracy")), note="first choice is right"),
        Figure("Learning rate", ui.num(latest.get("optim/learning_rate"))),
        Figure("Training speed", ui.compact(latest.get("speed/train_tokens")), "tok/s"),
    ]


def _rl(run: Run) -> list[Figure]:
    latest: Mapping[str, float] = run.latest
    counts = rollouts.verdict_counts(run=run)
    found = rollouts.finding_counts(run=run)
    passed = f"{ui.num(counts['passed'])} passed, {ui.num(counts['failed'])} failed"
    return [
        Figure("Reward", ui.num(latest.get("reward/mean")), note=f"best of K {ui.num(latest.get('reward/best_of_k'))}"),
        Figure(
            "Held-out pass@1",
            ui.percent(latest.get("eval/pass1")),
            note=f"best of K {ui.percent(latest.get('eval/best_of_k'))}",
        ),
        Figure("Entropy", ui.num(latest.get("policy/entropy")), note="nat a token"),
        Figure(
            "Staleness",
            ui.num(latest.get("staleness/mean")),
            note=f"versions; max {ui.num(latest.get('staleness/max'))}",
        ),
        Figure("Trainer idle", ui.percent(latest.get("idle/trainer")), note="waits for rollouts"),
        Figure("Engine idle", ui.percent(latest.get("idle/rollouts")), note="computes nothing"),
        Figure("Generated", ui.compact(latest.get("speed/generate_tokens")), "tok/s"),
        Figure("Trained", ui.compact(latest.get("speed/train_tokens")), "tok/s"),
        Figure("Rollouts", ui.num(counts["dispatched"]), note=passed),
        Figure("Infra errors", ui.num(counts["infra_error"]), note="never trained on"),
        Figure(
            "Findings",
            ui.num(found["high"] + found["medium"] + found["low"]),
            note=f"{ui.num(found['high'])} high, {ui.num(found['quarantined'])} in quarantine",
        ),
    ]
