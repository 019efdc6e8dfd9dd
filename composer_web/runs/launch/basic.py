"""Settings of the launch form's Basic view: what a person decides for each run. The Advanced view has all settings."""

from __future__ import annotations

MAX = 15
"""Maximum number of settings in the Basic view: one screen."""

COMMON = ("name", "policy")
STAGES: dict[str, tuple[str, ...]] = {
    "rl": (
        "suite",
        "steps",
        "groups_per_step",
        "group_size",
        "max_off_policy_steps",
        "eval_suite",
        "eval_every",
        "eval_tasks",
        "sampling.temperature",
        "sampling.max_context_tokens",
        "sampling.max_turns",
        "objective.algorithm",
        "optimizer.learning_rate",
    ),
    "sft": (
        "dataset",
        "steps",
        "batch_tokens",
        "episodes",
        "replay_share",
        "optimizer.name",
        "optimizer.learning_rate",
        "optimizer.warmup_steps",
        "checkpoint.every_steps",
    ),
    "midtrain": (
        "corpus",
        "steps",
        "batch_tokens",
        "drill_share",
        "source_share",
        "long_context_share",
        "optimizer.name",
        "optimizer.learning_rate",
        "optimizer.warmup_steps",
        "checkpoint.every_steps",
    ),
}
"""Kind of stage → its settings, in the order of the form."""

NAMES = frozenset(COMMON) | {f"stage.{kind}.{name}" for kind, names in STAGES.items() for name in names}
"""Names of all of them, as the form's fields are called."""
