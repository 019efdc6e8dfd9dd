"""The stages before reinforcement learning: mid-training and SFT."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainer.config.learning import MTPConfig, OptimizerConfig
from trainer.config.machines import CheckpointConfig, ParallelConfig
from trainer.config.parts import CODEBASE, FOLDER, Part, setting

MIXTURE = r"^\s*(\w[\w.-]{0,79}\s*=\s*\d{1,6}(\.\d{1,6})?\s*(,\s*\w[\w.-]{0,79}\s*=\s*\d{1,6}(\.\d{1,6})?\s*)*)?$"


class MidtrainConfig(Part):
    """Next-token training on a prepared corpus, or on Python source and copying drills."""

    kind: Literal["midtrain"] = "midtrain"
    init: Literal["policy", "scratch"] = setting("policy", "Continue the starting policy, or start from random weights")
    steps: int = setting(60, "Optimiser steps", gt=0)
    batch_tokens: int = setting(4096, "Tokens of one step", gt=0)
    micro_batch_tokens: int = setting(
        0, "Most padded tokens of one forward and backward pass; 0 for the whole step at once", ge=0, advanced=True
    )
    drill_share: float = setting(0.25, "Share of copying drills in the mixture", ge=0, le=1)
    source_share: float = setting(0.15, "Share of Python standard-library source", ge=0, le=1)
    corpus: str = setting(
        "",
        "Prepared corpus to train on, by its name; empty for the built-in mixture",
        pattern=FOLDER,
        nothing="the built-in mixture",
    )
    corpus_mixture: str = setting(
        "",
        "Mix of several prepared corpora by their tokens, in place of one: code=3, docs=1",
        pattern=MIXTURE,
        advanced=True,
    )
    codebase: str = setting(
        "",
        "Text whose loss is measured and that is never trained on: `repository:NAME` (its commit at HEAD), `environment:NAME`, "
        "`corpus:NAME`, or a folder below `corpora`",
        pattern=CODEBASE,
        advanced=True,
    )
    held_out_tokens: int = setting(
        8192,
        "Tokens of each language, and of the codebase, on which the held-out loss is measured",
        gt=0,
        advanced=True,
    )
    seq_len: int = setting(512, "Length of the rows that a corpus' documents are packed into", ge=16, advanced=True)
    long_context_share: float = setting(
        0.0, "Share of the steps, at the end, that train on long rows with a scaled rotary embedding", ge=0, le=1
    )
    long_context_seq_len: int = setting(
        2048, "Length of the long rows, and of the context from then on", ge=16, advanced=True
    )
    rope: Literal["theta", "linear", "yarn"] = setting(
        "theta", "How the rotary embedding reaches the long context", advanced=True
    )
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    mtp: MTPConfig = Field(default_factory=MTPConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)

    @model_validator(mode="after")
    def _long_rows(self) -> MidtrainConfig:
        if self.long_context_share and not self.corpora:
            raise ValueError("long_context_share needs a corpus: the built-in mixture has no long documents")
        if self.long_context_share and self.long_context_seq_len < self.seq_len:
            raise ValueError(
                f"long_context_seq_len={self.long_context_seq_len} must not be below seq_len={self.seq_len}"
            )
        return self

    @model_validator(mode="after")
    def _one_or_several(self) -> MidtrainConfig:
        if self.corpus and self.corpus_mixture:
            raise ValueError(f"corpus={self.corpus!r} and corpus_mixture are both given; leave one empty")
        names = [part.partition("=")[0].strip() for part in self.corpus_mixture.split(",") if part.strip()]
        if len(set(names)) < len(names):
            raise ValueError("corpus_mixture names a corpus twice; give it one weight")
        if any(weight <= 0 for weight in self.corpora.values()):
            raise ValueError("corpus_mixture: a weight is above 0; leave out a corpus that is not to be used")
        return self

    @property
    def corpora(self) -> dict[str, float]:
        """Weight of each corpus; empty for the built-in mixture."""
        if self.corpus:
            return {self.corpus: 1.0}
        pairs = (part.partition("=") for part in self.corpus_mixture.split(",") if part.strip())
        return {name.strip(): float(weight) for name, _, weight in pairs}

    @property
    def short_steps(self) -> int:
        """Steps before the long rows begin."""
        return self.steps - round(self.long_context_share * self.steps)


class SFTConfig(Part):
    """Supervised training on conversations of a dataset, or on scripted, deliberately imperfect expert trajectories."""

    kind: Literal["sft"] = "sft"
    dataset: str = setting(
        "",
        "Prepared dataset of conversations or rollouts to train on (page Datasets); empty for a scripted expert",
        pattern=FOLDER,
        nothing="a scripted expert",
    )
    max_tokens: int = setting(
        8192, "Conversations of a dataset that have more tokens are left out and counted", ge=16, advanced=True
    )
    steps: int = setting(60, "Optimiser steps", gt=0)
    batch_tokens: int = setting(4096, "Tokens of one step", gt=0)
    micro_batch_tokens: int = setting(
        0, "Most padded tokens of one forward and backward pass; 0 for the whole step at once", ge=0, advanced=True
    )
    episodes: int = setting(600, "Expert episodes to record in real sandboxes; unused with a dataset", gt=0)
    expert_accuracy: float = setting(
        0.04,
        "Share of the expert's attempts that are the intended fix; the rest are guesses, some of them right by luck. "
        "Unused with a dataset",
        ge=0,
        le=1,
    )
    tamper_share: float = setting(
        0.02,
        "Share of the expert's episodes that rewrite the visible test instead of the code, for demonstrations of gaming",
        ge=0,
        le=1,
        advanced=True,
    )
    observation_weight: float = setting(
        0.0, "Loss weight of observations and of calls that failed (other policy tokens have 1)", ge=0, le=1
    )
    replay_share: float = setting(
        0.0,
        "Share of examples drawn from mid-training's data, so that what they taught is not unlearned",
        ge=0,
        lt=1,
    )
    replay_corpus: str = setting(
        "",
        "Prepared corpus that is replayed: the one that the policy was mid-trained on; empty for the built-in mixture",
        pattern=FOLDER,
        nothing="the built-in mixture",
    )
    codebase: str = setting(
        "",
        "Text whose loss is measured and that is never trained on: `repository:NAME` (its commit at HEAD), `environment:NAME`, "
        "`corpus:NAME`, or a folder below `corpora`",
        pattern=CODEBASE,
        advanced=True,
    )
    held_out_tokens: int = setting(8192, "Tokens of the codebase on which its loss is measured", gt=0, advanced=True)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    mtp: MTPConfig = Field(default_factory=MTPConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)

    @model_validator(mode="after")
    def _replayed(self) -> SFTConfig:
        if self.replay_corpus and not self.replay_share:
            raise ValueError(
                "replay_corpus is never read with replay_share=0; raise the share or leave the corpus empty"
            )
        return self
