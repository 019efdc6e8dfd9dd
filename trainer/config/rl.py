"""The stage of reinforcement learning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainer.config.episodes import HarnessConfig, SamplingConfig
from trainer.config.labels import LabelsConfig
from trainer.config.learning import FeedbackConfig, HeadsConfig, LoraConfig, ObjectiveConfig, OptimizerConfig
from trainer.config.machines import CheckpointConfig, ParallelConfig
from trainer.config.parts import Part, setting
from trainer.config.prompts import AsynchronyConfig, SamplerConfig, SessionsConfig
from trainer.config.rewards import MonitorsConfig, RewardConfig


class RLConfig(Part):
    """Asynchronous reinforcement learning over whole episodes."""

    kind: Literal["rl"] = "rl"
    suite: str = setting("train", "Suite of prompts; each prompt is used once")
    steps: int = setting(40, "Optimiser steps", gt=0)
    groups_per_step: int = setting(12, "Groups (prompts) of one step", gt=0)
    group_size: int = setting(8, "Rollouts of one prompt (G)", ge=2)
    max_staleness: int = setting(1, "O: versions that a rollout may lag at dispatch; 0 is on-policy", ge=0)
    micro_batch_tokens: int = setting(4096, "Most padded tokens of one forward and backward pass", gt=0, advanced=True)
    batch_timeout_seconds: float = setting(
        1800.0, "The trainer gives up when no full batch arrives for so long", gt=0, advanced=True
    )
    max_in_flight_groups: int = setting(24, "Groups dispatched and not yet accepted", gt=0, advanced=True)
    infra_retries: int = setting(
        2, "Times that a group is tried again after an infrastructure failure", ge=0, advanced=True
    )
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    harness: HarnessConfig = Field(default_factory=HarnessConfig)
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    reward: RewardConfig = Field(default_factory=RewardConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    feedback: FeedbackConfig = Field(default_factory=FeedbackConfig)
    lora: LoraConfig = Field(default_factory=LoraConfig)
    heads: HeadsConfig = Field(default_factory=HeadsConfig)
    asynchrony: AsynchronyConfig = Field(default_factory=AsynchronyConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)
    monitors: MonitorsConfig = Field(default_factory=MonitorsConfig)
    labels: LabelsConfig = Field(default_factory=LabelsConfig)
    sampler: SamplerConfig = Field(default_factory=SamplerConfig)
    sessions: SessionsConfig = Field(default_factory=SessionsConfig)
    eval_suite: str | None = setting("held-out", "Suite evaluated before, during and after; empty for none")
    eval_every: int = setting(20, "Steps between evaluations during the run", gt=0)
    eval_tasks: int = setting(48, "Tasks of one evaluation", gt=0)
    eval_samples: int = setting(8, "Rollouts of each task before and after (K of best-of-K)", ge=1)

    @model_validator(mode="after")
    def _summary_fits(self) -> RLConfig:
        summary = self.harness.summary
        if summary.trigger_tokens and summary.trigger_tokens + summary.max_tokens > self.sampling.max_context_tokens:
            raise ValueError(
                f"trigger_tokens={summary.trigger_tokens} and a summary of {summary.max_tokens} tokens do not fit into "
                f"max_context_tokens={self.sampling.max_context_tokens}; lower the trigger"
            )
        return self

    @model_validator(mode="after")
    def _window(self) -> RLConfig:
        most = (self.max_staleness + 1) * self.groups_per_step + self.surplus_groups
        if self.max_in_flight_groups > most:
            need = -(-(self.max_in_flight_groups - self.surplus_groups) // self.groups_per_step) - 1
            raise ValueError(
                f"max_in_flight_groups={self.max_in_flight_groups} needs max_staleness >= {need} "
                f"(or at most {most} groups in flight)"
            )
        if 0 < self.asynchrony.window < self.groups_per_step:
            raise ValueError(
                f"asynchrony.window={self.asynchrony.window} is smaller than a step of {self.groups_per_step} groups; "
                "raise it, or 0 for the default"
            )
        return self

    @property
    def group_deadline(self) -> float:
        """Seconds after which one try of a group is given up: episodes that all wait for a sandbox and are all run again."""
        return self.asynchrony.group_seconds or 120.0 + 3.0 * self.sampling.episode_seconds * (1 + self.infra_retries)

    @property
    def surplus_groups(self) -> int:
        """Groups that over-sampling keeps dispatched beyond a step's need."""
        return round(self.asynchrony.oversample * self.groups_per_step)

    @property
    def ready_limit(self) -> int | None:
        """Finished groups that wait for a step at which no more are dispatched; None without this bound."""
        if not self.asynchrony.ready:
            return None
        return round(self.asynchrony.ready * self.groups_per_step) + self.surplus_groups

    @property
    def window_groups(self) -> int:
        """W: a group is overtaken by fewer than this many later ones."""
        return self.asynchrony.window or self.groups_per_step + int(
            0.3 * (self.max_staleness + 1) * self.groups_per_step
        )

    @property
    def lag_limit(self) -> int:
        """Versions that a group may lag when it is trained; the batch waits for one that would lag more."""
        return self.max_staleness + -(-self.surplus_groups // self.groups_per_step)
