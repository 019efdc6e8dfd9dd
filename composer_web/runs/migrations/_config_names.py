"""The names of configuration keys before and after release 0.2, for the migrations that rewrite stored configurations."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.db.migrations.operations.base import Operation
from psycopg import sql

PARTS: dict[str, dict[str, str]] = {
    "parallel": {
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
    "optimizer": {"decay_from": "decay_start", "final_share": "min_lr_ratio", "clip_norm": "max_grad_norm"},
    "objective": {"expert_plausibility": "router_replay_threshold"},
    "sampling": {"routed_experts": "enable_router_replay", "speculate": "num_speculative_tokens"},
    "orchestrator": {
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
    "curriculum": {"hardest": "min_pass_rate", "easiest": "max_pass_rate", "harder_later": "easy_to_hard"},
    "textual_feedback": {
        "most_hints": "max_hints",
        "least_shift": "min_shift",
        "turns_at_once": "micro_batch_turns",
        "cap": "max_token_kl",
    },
    "mtp": {
        "ahead": "num_speculative_tokens",
        "tokens": "train_tokens",
        "window": "seq_len",
        "width": "hidden_size",
        "batch": "batch_size",
    },
    "sessions": {"most_redacted": "max_redacted_share", "least_turns": "min_turns", "deviations": "z_score"},
    "canary": {"least_sessions": "min_sessions", "least_turns": "min_turns", "deviations": "z_score"},
}
STAGE = {
    "max_staleness": "max_off_policy_steps",
    "feedback": "textual_feedback",
    "heads": "mtp",
    "asynchrony": "orchestrator",
    "sampler": "curriculum",
    "row_tokens": "seq_len",
    "long_share": "long_context_share",
    "long_tokens": "long_context_seq_len",
}


def new_parts(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage, or any dictionary of parts, with new keys."""
    named = {STAGE.get(key, key): value for key, value in stage.items()}
    return {
        key: {PARTS[key].get(name, name): found for name, found in value.items()}
        if key in PARTS and isinstance(value, dict)
        else value
        for key, value in named.items()
    }


def new_config(config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration with new keys."""
    stage = config.get("stage")
    return {**config, "stage": new_parts(stage)} if isinstance(stage, dict) else config


def new_path(path: str) -> str:
    """A dotted path of a sweep, as `stage.optimizer.clip_norm`."""
    words = path.split(".")
    if words[0] != "stage" or len(words) < 2:
        return path
    words[1] = STAGE.get(words[1], words[1])
    if len(words) > 2:
        words[2] = PARTS.get(words[1], {}).get(words[2], words[2])
    return ".".join(words)


def new_fields(fields: list[Any]) -> list[Any]:
    """The fields of a sweep: [path, values]."""
    return [[new_path(path), values] for path, values in fields]


class Rewrite(Operation):
    """Apply `change` to a JSON column. Triggers that guard started runs are off meanwhile.

    RunPython would do, but it renders the models of every app, which makes all later migrations slow.
    """

    reversible = True
    reduces_to_sql = False

    def __init__(self, table: str, column: str, change: Callable[[Any], Any]) -> None:
        self.table, self.column, self.change = table, column, change

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models stay as they are."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        table, column = sql.Identifier(self.table), sql.Identifier(self.column)
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT id, {} FROM {}").format(column, table))
            found = [(pk, json.loads(value) if isinstance(value, str) else value) for pk, value in cursor.fetchall()]
            changed = [(json.dumps(new), pk) for pk, value in found if value and (new := self.change(value)) != value]
            if changed:
                cursor.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
                cursor.executemany(sql.SQL("UPDATE {} SET {} = %s::jsonb WHERE id = %s").format(table, column), changed)
                cursor.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(table))

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Release 0.1 does not read the new names; go back with a backup."""

    def describe(self) -> str:
        return f"New names of keys in {self.table}.{self.column}"
