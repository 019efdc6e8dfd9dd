"""Optimizer, objective, correction, textual feedback, adapters."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainer.config.auto import AutoFloat
from trainer.config.parts import Part, setting


class OptimizerConfig(Part):
    name: Literal["adamw", "muon"] = setting(
        "adamw", "AdamW for all weights, or Muon for matrices and AdamW for the rest"
    )
    learning_rate: AutoFloat = setting(0.0, "Peak learning rate", ge=0, le=1, auto=True)
    warmup_steps: int = setting(5, "Steps of linear warm-up", ge=0)
    decay_start: float = setting(0.6, "Share of the run after which the rate falls linearly", ge=0, le=1, advanced=True)
    min_lr_ratio: float = setting(0.15, "Rate at the end, as a share of the peak", ge=0, le=1, advanced=True)
    weight_decay: float = setting(0.0, "Decoupled weight decay", ge=0, advanced=True)
    beta1: float = setting(0.9, "First moment decay", ge=0, lt=1, advanced=True)
    beta2: float = setting(0.95, "Second moment decay", ge=0, lt=1, advanced=True)
    max_grad_norm: float = setting(1.0, "Gradient norm limit", gt=0)
    state_dtype: Literal["float32", "int8"] = setting(
        "float32",
        "Precision of AdamW's moments; int8 stores them in 8 bits and blocks of 256: a quarter of the memory (one rank)",
        advanced=True,
    )

    @property
    def moment_bytes(self) -> int:
        """Bytes a parameter of both moments, scales left out."""
        return 2 if self.state_dtype == "int8" and self.name == "adamw" else 8


class CorrectionConfig(Part):
    """What is done about tokens whose sampler and trainer probabilities differ."""

    kind: Literal["auto", "none", "truncated", "masked", "dppo_tv", "clipped", "sequence"] = setting(
        "auto", "Importance correction between sampler and trainer; auto is the algorithm's own"
    )
    clip_high: float = setting(2.0, "Upper bound of the per-token ratio (truncated, masked)", gt=0, advanced=True)
    clip_low: float = setting(0.5, "Lower bound (masked only)", ge=0, advanced=True)
    epsilon_low: float | None = setting(
        None, "Distance below 1 at which a ratio is clipped (clipped, sequence)", gt=0, le=1, advanced=True
    )
    epsilon_high: float | None = setting(None, "The same above 1; empty for the published values", gt=0, advanced=True)
    tv_bound: float = setting(
        0.2, "Largest change of a token's probability that is still learned from (dppo_tv)", gt=0, le=1, advanced=True
    )

    @model_validator(mode="after")
    def _window(self) -> CorrectionConfig:
        if self.kind == "masked" and self.clip_low >= self.clip_high:
            raise ValueError(f"clip_low={self.clip_low} must be below clip_high={self.clip_high}")
        return self


class ObjectiveConfig(Part):
    """How rewards become a gradient. Composer: A = R - mean(R), no std, no length normaliser, constant divisor."""

    algorithm: Literal["composer", "grpo", "dr_grpo", "rloo", "gspo", "cispo"] = setting(
        "composer", "How a group's rewards become advantages of its tokens"
    )
    loss_divisor: float = setting(4096.0, "Constant that the token sum is divided by", gt=0, advanced=True)
    kl_coefficient: float = setting(0.0, "k1 KL to the reference, as a stop-gradient advantage term", ge=0)
    reference: Literal["start", "lagged"] = setting(
        "start", "KL reference: the starting policy, or the policy of some steps ago", advanced=True
    )
    reference_steps: int = setting(20, "Steps between updates of a lagged reference", gt=0, advanced=True)
    router_replay_threshold: float = setting(
        0.5,
        "A replayed expert is used while its score is at least this share of the lowest score among the router's own "
        "choices; 0 replays all",
        ge=0,
        le=1,
        advanced=True,
    )
    correction: CorrectionConfig = Field(default_factory=CorrectionConfig)


class TextualFeedbackConfig(Part):
    """Targeted textual feedback: turns with a mistake are re-scored with a hint and pulled toward what it says."""

    coefficient: float = setting(
        0.0, "Weight of the KL toward the hinted policy on turns with a mistake; 0 is off", ge=0
    )
    rules: str = setting(
        "unknown_tool, invalid_arguments, repeated_call",
        "Rules that find mistakes and write hints, separated by commas; also terminal_for_tools, and model where a "
        "language model is configured",
    )
    max_hints: int = setting(8, "Most hinted turns of one group", gt=0, advanced=True)
    top_k: int = setting(64, "Tokens of the hinted policy that are matched; 0 for all", ge=0, advanced=True)
    max_token_kl: float = setting(4.0, "Most nats that one token of a hinted turn counts", gt=0, advanced=True)
    min_shift: float = setting(
        0.01, "A hint that moves a turn's tokens by less (nats, mean) is dropped", ge=0, advanced=True
    )
    micro_batch_turns: int = setting(16, "Hinted turns of one forward pass", gt=0, advanced=True)

    @property
    def named_rules(self) -> tuple[str, ...]:
        return tuple(name for part in self.rules.split(",") if (name := part.strip()))


class MTPConfig(Part):
    """An MTP draft head for speculative decoding (`mtp/` beside the weights of a checkpoint). It learns by self-distillation
    what the policy itself would say in the stage's texts or rollouts; the policy's own loss knows nothing of it."""

    num_speculative_tokens: int = setting(
        0, "Draft tokens that the head predicts; 0 trains no head and keeps an existing one", ge=0, le=8
    )
    schedule: Literal["joint", "end"] = setting(
        "joint",
        "joint: the head trains at every optimiser step, on the step's tokens, and each published version brings it; "
        "end: once, after the last step",
        advanced=True,
    )
    tokens_per_step: int = setting(4096, "Max tokens of a step that the head trains on (joint)", ge=16, advanced=True)
    train_tokens: int = setting(
        65536, "Max tokens of the last texts or rollouts that the head trains on (end)", ge=2, advanced=True
    )
    seq_len: int = setting(192, "Length of one training sequence, in tokens", ge=16, advanced=True)
    hidden_size: int = setting(256, "Hidden size of the head", ge=1, advanced=True)
    steps: int = setting(400, "Optimiser steps of the head (end)", ge=1, advanced=True)
    batch_size: int = setting(8, "Sequences in one optimiser step of the head", ge=1, advanced=True)
    learning_rate: float = setting(
        3e-3,
        "Peak learning rate of the head. joint: it warms up and falls as the policy's does; end: it falls as a cosine",
        gt=0,
        le=1,
        advanced=True,
    )

    @property
    def joint(self) -> bool:
        """Whether a head trains at every step."""
        return self.num_speculative_tokens > 0 and self.schedule == "joint"

    @property
    def at_end(self) -> bool:
        """Whether a head trains after the last step."""
        return self.num_speculative_tokens > 0 and self.schedule == "end"

    @model_validator(mode="after")
    def _pieces(self) -> MTPConfig:
        if self.train_tokens < 2 * self.seq_len:
            raise ValueError(
                f"train_tokens={self.train_tokens} must be at least two pieces of seq_len={self.seq_len}: one is "
                "measured; raise train_tokens"
            )
        if self.num_speculative_tokens >= self.seq_len:
            raise ValueError(
                f"num_speculative_tokens={self.num_speculative_tokens} needs longer pieces, they have "
                f"{self.seq_len} tokens; raise seq_len"
            )
        return self


class LoraConfig(Part):
    """Low-rank adapters (peft, extra `lora`). Published versions are plain merged weights."""

    rank: int = setting(0, "Rank of the adapters; 0 trains all weights", ge=0, le=1024)
    alpha: float = setting(32.0, "Scale: an update is multiplied by alpha / rank", gt=0, advanced=True)
    targets: str = setting(
        "all-linear", "Modules that get adapters: names separated by commas, or all-linear", advanced=True
    )
