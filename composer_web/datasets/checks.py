"""Checks that a run's datasets exist and were decontaminated against its evaluation suites."""

from __future__ import annotations

from collections.abc import Iterable

from composer_web.datasets import codebases, corpora, guards, selectors
from trainer.config import MidtrainConfig, RunConfig, SFTConfig
from trainer.midtrain.corpus.clean import Guard


def check(config: RunConfig) -> list[str]:
    """The check of a run's configuration that this app registers with `runs`. Raises UserError."""
    stage = config.stage
    return check_data(stage) if isinstance(stage, MidtrainConfig | SFTConfig) else []


def check_data(stage: MidtrainConfig | SFTConfig) -> list[str]:
    """Warnings that a person should read. Raises UserError naming the setting whose data are not there."""
    warnings: list[str] = []
    if stage.codebase:
        codebases.of_run(stage.codebase)
    trained = list(stage.corpora) if isinstance(stage, MidtrainConfig) else [stage.replay_corpus]
    if stage.codebase and stage.codebase.removeprefix("corpus:") in trained:
        warnings.append(f"codebase {stage.codebase!r} is trained on as well: its loss says how much was memorised")
    if isinstance(stage, MidtrainConfig):
        for name in stage.corpora:
            warnings += _corpus(name, "stage.corpus" if stage.corpus else "stage.corpus_mixture")
        return warnings
    if stage.dataset:
        dataset, made = selectors.ready(stage.dataset)
        warnings += _unguarded(f"dataset {stage.dataset!r}", made.guards)
        if dataset.dropped:
            left = ", ".join(f"{count} {reason}" for reason, count in made.dropped.items())
            warnings.append(f"dataset {stage.dataset!r} was prepared without {left}")
    if stage.replay_corpus:
        warnings += _corpus(stage.replay_corpus, "stage.replay_corpus")
    return warnings


def _corpus(name: str, field: str) -> list[str]:
    return _unguarded(f"corpus {name!r}", corpora.provenance(name, field).guards)


def _unguarded(what: str, known: Iterable[Guard]) -> list[str]:
    if not (open_ := guards.unguarded(known)):
        return []
    names = ", ".join(open_[:8]) + (f" and {len(open_) - 8} more" if len(open_) > 8 else "")
    return [
        f"{what} was not decontaminated against {names} as they are now: results on them may be of what was memorised; "
        "prepare it anew"
    ]
