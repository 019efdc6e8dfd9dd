"""Amount of work that a configuration will run."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import MidtrainConfig, RLConfig, RunConfig, SFTConfig


@dataclass(frozen=True)
class PlanRow:
    label: str
    value: int
    how: str
    """The formula, so that a reader can check the number."""


def what_will_run(config: RunConfig) -> list[PlanRow]:
    """Counts of the run's work, most wanted first."""
    match config.stage:
        case RLConfig() as stage:
            return _rl(stage)
        case MidtrainConfig() as stage:
            return [
                PlanRow("Optimiser steps", stage.steps, ""),
                PlanRow(
                    "Tokens trained", stage.steps * stage.batch_tokens, f"{stage.steps} steps × {stage.batch_tokens}"
                ),
            ]
        case SFTConfig() as stage:
            return [
                PlanRow("Optimiser steps", stage.steps, ""),
                _data(stage),
                PlanRow(
                    "Tokens trained", stage.steps * stage.batch_tokens, f"{stage.steps} steps × {stage.batch_tokens}"
                ),
            ]


def _data(stage: SFTConfig) -> PlanRow:
    from composer_web.datasets.selectors import find  # datasets are built on runs

    if not stage.dataset:
        return PlanRow("Expert episodes", stage.episodes, "recorded in real sandboxes first")
    found = find(stage.dataset)
    left = f", {found.dropped} were left out" if found and found.dropped else ""
    return PlanRow("Conversations", found.conversations if found else 0, f"of dataset {stage.dataset}{left}")


def evaluation_rollouts(stage: RLConfig) -> int:
    """Number of rollouts in all evaluations of a run: before, during and after training."""
    during, fewer = _during(stage)
    return stage.eval_tasks * (2 * stage.eval_samples + during * fewer) if stage.eval_suite else 0


def _during(stage: RLConfig) -> tuple[int, int]:
    """Number of evaluations between the first and the last, and samples per task in each."""
    return (stage.steps - 1) // stage.eval_every, max(1, stage.eval_samples // 4)


def _rl(stage: RLConfig) -> list[PlanRow]:
    prompts = stage.steps * stage.groups_per_step
    if stage.sessions.channel:
        how = f"{stage.steps} steps × {stage.groups_per_step}, recorded on {stage.sessions.channel}"
        return [PlanRow("Optimiser steps", stage.steps, ""), PlanRow("Sessions of users", prompts, how)]
    rollouts = prompts * stage.group_size
    rows = [
        PlanRow("Optimiser steps", stage.steps, ""),
        PlanRow("Prompts", prompts, f"{stage.steps} steps × {stage.groups_per_step} groups, each once"),
        PlanRow("Rollouts", rollouts, f"{prompts} prompts × {stage.group_size}"),
        PlanRow(
            "Tokens, at most",
            rollouts * stage.sampling.max_context_tokens,
            f"{rollouts} rollouts × {stage.sampling.max_context_tokens} of context",
        ),
    ]
    if stage.eval_suite:
        during, fewer, total = *_during(stage), evaluation_rollouts(stage)
        between = f", × {fewer} in each of {during} between" if during else ""
        how = f"{stage.eval_tasks} tasks × {stage.eval_samples} before and after{between}"
        rows.append(PlanRow("Evaluation rollouts", total, how))
    return rows
