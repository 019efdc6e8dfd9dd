"""Configuration keys that have a new name. The old name is accepted for one release, with a deprecation warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

RENAMED: dict[str, dict[str, str]] = {
    "RLConfig": {
        "max_staleness": "max_off_policy_steps",
        "feedback": "textual_feedback",
        "heads": "mtp",
        "asynchrony": "orchestrator",
        "sampler": "curriculum",
    },
    "MidtrainConfig": {
        "row_tokens": "seq_len",
        "long_share": "long_context_share",
        "long_tokens": "long_context_seq_len",
        "heads": "mtp",
    },
    "SFTConfig": {
        "heads": "mtp",
    },
    "ParallelConfig": {
        "ranks": "world_size",
        "shards": "dp_shard",
        "replicas": "dp_replicate",
        "context": "cp",
        "experts": "ep",
        "machines": "max_nodes",
        "machines_least": "min_nodes",
        "checkpoint_activations": "activation_checkpointing",
        "logits_at_once": "lm_head_chunk_size",
        "restarts": "max_restarts",
    },
    "OptimizerConfig": {
        "decay_from": "decay_start",
        "final_share": "min_lr_ratio",
        "clip_norm": "max_grad_norm",
    },
    "ObjectiveConfig": {
        "expert_plausibility": "router_replay_threshold",
    },
    "SamplingConfig": {
        "routed_experts": "enable_router_replay",
        "speculate": "num_speculative_tokens",
    },
    "OrchestratorConfig": {
        "oversample": "over_sampling",
        "ready": "max_buffered_steps",
        "adaptive": "adaptive_concurrency",
        "straggler": "straggler_policy",
        "straggler_factor": "straggler_timeout_factor",
        "trim_to": "straggler_min_share",
        "window": "batch_window_groups",
        "breaker": "circuit_breaker_losses",
        "skip_non_finite": "max_non_finite_steps",
    },
    "CurriculumConfig": {
        "hardest": "min_pass_rate",
        "easiest": "max_pass_rate",
        "harder_later": "easy_to_hard",
    },
    "TextualFeedbackConfig": {
        "most_hints": "max_hints",
        "least_shift": "min_shift",
        "turns_at_once": "micro_batch_turns",
        "cap": "max_token_kl",
    },
    "MTPConfig": {
        "ahead": "num_speculative_tokens",
        "tokens": "train_tokens",
        "window": "seq_len",
        "width": "hidden_size",
        "batch": "batch_size",
    },
    "SessionsConfig": {
        "most_redacted": "max_redacted_share",
    },
    "CanaryGuards": {
        "least_sessions": "min_sessions",
    },
    "Guards": {
        "least_turns": "min_turns",
        "deviations": "z_score",
    },
    "DeploymentSpec": {
        "speculate": "num_speculative_tokens",
    },
    "GateRule": {
        "least": "min_score",
        "most_drop": "max_drop",
    },
    "Env": {
        "episodes": "rollout_concurrency",
    },
}
"""Class of a part → old key → new key; `Env` is the settings of a machine (`OPENCOMPOSER_…`). Removed after release 0.2."""


def with_new_names(part: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with the new keys of `part` and its bases. Raises ValueError when both names of a key are given."""
    table = {old: new for base in part.__mro__ for old, new in RENAMED.get(base.__name__, {}).items()}
    old = [key for key in given if key in table and key not in table.values()]
    for key in old:
        if table[key] in given:
            raise ValueError(f"{key} is the old name of {table[key]}, and both are given; leave out {key}")
        warnings.warn(f"{part.__name__}: {key} is deprecated; use {table[key]}", DeprecationWarning, stacklevel=2)
    return {table[key] if key in old else key: value for key, value in given.items()}
