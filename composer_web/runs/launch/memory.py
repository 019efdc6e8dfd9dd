"""Memory estimate of each trainer rank and of the engine, computed from the policy's shape and the settings without
measuring."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.policies.selectors import resolve
from composer_web.runs.defaults import trainer_bytes
from trainer.config import MidtrainConfig, RLConfig, RunConfig, SFTConfig
from trainer.defaults import Shape, read_shape

FLOAT32, HALF = 4, 2
MOMENTS = {"adamw": 2, "muon": 2}
"""Maximum number of optimiser tensors per weight: Muon keeps one for its matrices, AdamW two for the rest."""
LOGIT_COPIES = 2
"""The logits and their gradient."""


@dataclass(frozen=True)
class Part:
    label: str
    bytes: int
    how: str
    """The formula, so that a reader can check the number."""


@dataclass(frozen=True)
class Memory:
    """Memory of one trainer rank, and of one engine that holds all of the run's rollouts."""

    ranks: int
    trainer: tuple[Part, ...]
    engine: tuple[Part, ...]
    """Empty if the stage makes no rollouts."""
    available: int | None
    """Bytes per rank on the largest live train worker. None if no worker reports any."""

    @property
    def rank_bytes(self) -> int:
        return sum(part.bytes for part in self.trainer)

    @property
    def engine_bytes(self) -> int:
        return sum(part.bytes for part in self.engine)

    @property
    def fits(self) -> bool | None:
        return None if self.available is None else self.rank_bytes <= self.available


def memory(config: RunConfig) -> Memory | None:
    """Memory of a run. None if the policy or its weight count is unknown. Without the policy's shape,
    batch-dependent parts are omitted."""
    try:
        weights = resolve(config.policy)
    except UserError:
        return None
    parameters = weights.policy.architecture.get("parameters")
    if not parameters:
        return None
    stage, shape = config.stage, read_shape(Path(weights.path))
    trainer = (state_bytes(config, parameters), *(activation_bytes(config, shape) if shape else ()))
    engine = _engine(stage, parameters, shape) if isinstance(stage, RLConfig) else ()
    return Memory(stage.parallel.world_size, trainer, engine, trainer_bytes(stage.parallel.ranks_per_node))


def state_bytes(config: RunConfig, parameters: int) -> Part:
    """State held for the whole run. FSDP shards and context-parallel ranks divide it; replicas duplicate it. Elastic
    training uses the minimum number of ranks."""
    stage = config.stage
    low_rank = isinstance(stage, RLConfig) and stage.lora.rank > 0
    copies, words = 1, ["weights"]
    eight_bit = not low_rank and stage.optimizer.moment_bytes < MOMENTS[stage.optimizer.name] * FLOAT32
    if not low_rank:
        moments = 0 if eight_bit else MOMENTS[stage.optimizer.name]
        copies += 1 + moments
        words.append("gradients")
        if not eight_bit:
            words.append(f"{moments} optimiser moments" if stage.optimizer.name == "adamw" else "moments, at most")
    if isinstance(stage, RLConfig) and stage.objective.kl_coefficient > 0:
        copies += 1
        words.append("the KL reference")
    fewest = stage.parallel.world_sizes[0]
    _, shards = stage.parallel.dims_for(fewest)
    cut = shards * stage.parallel.cp
    how = f"{copies} × {parameters} values of {FLOAT32} bytes: {', '.join(words)}"
    how += f"; cut over {cut} ranks" if cut > 1 else ""
    how += (
        f", with {stage.parallel.fewest_nodes} of {stage.parallel.max_nodes} machines"
        if fewest < stage.parallel.world_size
        else ""
    )
    how += "; adapters with their moments on top" if low_rank else ""
    each = copies * FLOAT32
    if eight_bit:
        each += stage.optimizer.moment_bytes
        how += f"; {stage.optimizer.moment_bytes} bytes of 8-bit moments each"
    return Part("State", math.ceil(each * parameters / cut), how)


def activation_bytes(config: RunConfig, shape: Shape) -> tuple[Part, Part]:
    """Peak activations of one forward pass before its backward pass. Attention stores no quadratic matrix."""
    stage = config.stage
    parallel = stage.parallel
    tokens = math.ceil(pass_tokens(stage) / parallel.cp)
    size = HALF if parallel.precision == "bfloat16" else FLOAT32
    layer = shape.layer_activations
    if parallel.activation_checkpointing:
        values, words = shape.layers * shape.width + layer, "the input of each layer, and one whole layer"
    else:
        values, words = shape.layers * layer, f"{layer} values in each of {shape.layers} layers"
    logits = tokens * shape.vocabulary
    bounded = min(logits, parallel.lm_head_chunk_size or logits)
    said = (
        f"lm_head_chunk_size bounds them to {bounded}" if bounded < logits else f"{tokens} tokens × {shape.vocabulary}"
    )
    return (
        Part("Activations, at most", tokens * values * size, f"{tokens} tokens × {words}, {size} bytes each"),
        Part("Logits, at most", bounded * FLOAT32 * LOGIT_COPIES, f"{said}, and their gradient, {FLOAT32} bytes each"),
    )


def pass_tokens(stage: RLConfig | MidtrainConfig | SFTConfig) -> int:
    """Maximum padded tokens in one forward and backward pass of a rank. Rows are never split, so a row above the
    limit gets a pass of its own (`learning/packing.py`, `learning/supervised.py`)."""
    if isinstance(stage, RLConfig):
        return max(stage.micro_batch_tokens, stage.sampling.max_context_tokens)
    own = math.ceil(stage.batch_tokens / (stage.parallel.world_sizes[0] // stage.parallel.cp))
    if isinstance(stage, SFTConfig):
        row = stage.max_tokens if stage.dataset else 0  # the toy's demonstrations are short
    else:
        row = max(stage.seq_len, stage.long_context_seq_len if stage.long_context_share else 0)
    return min(own, max(stage.micro_batch_tokens, row)) if stage.micro_batch_tokens else own


def _engine(stage: RLConfig, parameters: int, shape: Shape | None) -> tuple[Part, ...]:
    """Engine memory if every rollout in flight uses its full context. Engines with less room make requests wait,
    or shrink."""
    size = HALF if env().engine.engine == "vllm" else FLOAT32
    held = Part("Weights", parameters * size, f"{parameters} values of {size} bytes")
    if shape is None:
        return (held,)
    slots, context = stage.max_in_flight_groups * stage.group_size, stage.sampling.max_context_tokens
    token = shape.kv_values * size
    return (
        held,
        Part("KV cache, all in flight", slots * context * token, f"{slots} slots × {context} tokens × {token} bytes"),
    )
