"""The learner of a stage from its configuration: both loops build theirs here."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel

from trainer import policy as policies
from trainer.config import RLConfig
from trainer.errors import StageError
from trainer.learning.activation_checkpointing import apply_activation_checkpointing, compile_each
from trainer.learning.backend import SingleProcess
from trainer.learning.importance_sampling import correction_of
from trainer.learning.lora import Adapters, LoraUnavailable, NoSuchTargets
from trainer.learning.step import Learner
from trainer.rl.reference import Reference
from trainer.stages.device import device_of
from trainer.weights import WeightStore


def build_reference(config: RLConfig, policy_dir: Path, store: WeightStore) -> Reference | None:
    """The reference of the KL term, which starts as the policy of `policy_dir`; None without such a term."""
    if config.objective.kl_coefficient == 0:
        return None
    model = policies.load_model(policy_dir).to(device_of(config.parallel))  # type: ignore[arg-type] # transformers' own
    return Reference(model, config.objective, store)


def build_adapters(model: PreTrainedModel, config: RLConfig, *, seed: int) -> Adapters | None:
    """None without low rank. Raises StageError."""
    if not config.lora.rank:
        return None
    try:
        return Adapters(model, config.lora, seed=seed)
    except (LoraUnavailable, NoSuchTargets) as error:
        raise StageError(f"stage.{error}") from error


def build_learner(
    policy: policies.Policy,
    config: RLConfig,
    *,
    seed: int,
    reference: Reference | None,
    published: Literal["float32", "bfloat16"] = "float32",
) -> Learner:
    """Moves the policy to where the run computes. `published` is the format of the versions that it publishes.

    Raises StageError: no such device, or adapters that cannot be.
    """
    policy.model.to(device_of(config.parallel))  # type: ignore[arg-type] # transformers' own
    adapters = build_adapters(policy.model, config, seed=seed)
    if config.parallel.activation_checkpointing:
        apply_activation_checkpointing(policy.model)
    if config.parallel.compile:
        compile_each(policy.model)
    return Learner(
        policy.model,
        objective=config.objective,
        correction=correction_of(config.objective),
        optimizer=config.optimizer,
        temperature=config.sampling.temperature,
        total_steps=config.steps,
        micro_batch_tokens=config.micro_batch_tokens,
        reference=reference.model if reference else None,
        adapters=adapters,
        enable_router_replay=config.sampling.enable_router_replay,
        backend=SingleProcess(
            precision=config.parallel.compute_format,
            lm_head_chunk_size=config.parallel.lm_head_chunk_size,
            compiled=config.parallel.compile,
        ),
        round_weights=published == "bfloat16",
    )
