"""What the trainer and the engine must hold, from the policy's size and the settings: arithmetic, nothing measured."""

from __future__ import annotations

from dataclasses import dataclass

from composer_web.ops.errors import UserError
from composer_web.policies.selectors import resolve
from trainer.config import RLConfig, RunConfig

FLOAT32 = 4
MOMENTS = {"adamw": 2, "muon": 2}
"""Optimiser tensors of a weight, at most: Muon keeps one of its matrices, AdamW two of the rest."""


@dataclass(frozen=True)
class Memory:
    """Bytes that stay for the whole run. Activations and the engine's KV cache come on top and grow with the batch."""

    trainer: int
    how: str
    engine: int
    """Of one copy of the policy in the engine, where rollouts are made; else 0."""


def memory(config: RunConfig) -> Memory | None:
    """None while the policy is unknown or does not say how many weights it has."""
    try:
        weights = resolve(config.policy).policy.architecture.get("parameters")
    except UserError:
        return None
    if not weights:
        return None
    stage = config.stage
    low_rank = isinstance(stage, RLConfig) and stage.lora.rank > 0
    copies, words = 1, ["weights"]
    if not low_rank:
        moments = MOMENTS[stage.optimizer.name]
        copies += 1 + moments
        words += [
            "gradients",
            f"{moments} optimiser moments" if stage.optimizer.name == "adamw" else "moments, at most",
        ]
    if isinstance(stage, RLConfig) and stage.objective.kl_coefficient > 0:
        copies += 1
        words.append("the KL reference")
    how = f"{copies} × {weights} values of {FLOAT32} bytes: {', '.join(words)}"
    if low_rank:
        how += "; adapters with their moments on top"
    engine = weights * FLOAT32 if isinstance(stage, RLConfig) else 0
    return Memory(copies * weights * FLOAT32, how, engine)
