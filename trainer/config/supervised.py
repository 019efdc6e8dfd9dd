"""The stages before reinforcement learning: mid-training and SFT."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainer.config.learning import MTPConfig, OptimizerConfig
from trainer.config.machines import CheckpointConfig, ParallelConfig
from trainer.config.parts import FOLDER, Part, setting


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
        "Prepared corpus to train on (a folder name below the data folder's `corpora`); empty for the built-in mixture",
        pattern=FOLDER,
        nothing="the built-in mixture",
    )
    codebase: str = setting(
        "",
        "Folder or git repository below `corpora` whose loss is measured and that is never trained on",
        pattern=FOLDER,
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
        if self.long_context_share and not self.corpus:
            raise ValueError("long_context_share needs a corpus: the built-in mixture has no long documents")
        if self.long_context_share and self.long_context_seq_len < self.seq_len:
            raise ValueError(
                f"long_context_seq_len={self.long_context_seq_len} must not be below seq_len={self.seq_len}"
            )
        return self

    @property
    def short_steps(self) -> int:
        """Steps before the long rows begin."""
        return self.steps - round(self.long_context_share * self.steps)


class SFTConfig(Part):
    """Supervised training on conversations of a dataset, or on scripted, deliberately imperfect expert trajectories."""

    kind: Literal["sft"] = "sft"
    dataset: str = setting(
        "",
        "Prepared dataset of conversations or rollouts to train on (page Datasets); empty for the toy's scripted expert",
        pattern=FOLDER,
        nothing="the toy's scripted expert",
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
