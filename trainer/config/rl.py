"""Configuration of the reinforcement learning stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainer.config.auto import AutoInt
from trainer.config.episodes import HarnessConfig, SamplingConfig
from trainer.config.labels import LabelsConfig
from trainer.config.learning import LoraConfig, MTPConfig, ObjectiveConfig, OptimizerConfig, TextualFeedbackConfig
from trainer.config.machines import CheckpointConfig, ParallelConfig
from trainer.config.parts import Part, setting
from trainer.config.prompts import CurriculumConfig, OrchestratorConfig, SessionsConfig
from trainer.config.rewards import MonitorsConfig, RewardConfig

START_SECONDS = 120.0
"""Time budget per group for claiming it, starting its sandboxes and recording its results."""


class RLConfig(Part):
    """Asynchronous reinforcement learning over whole episodes."""

    kind: Literal["rl"] = "rl"
    suite: str = setting("train", "Suite of prompts; each prompt is used once")
    steps: int = setting(40, "Optimiser steps", gt=0)
    groups_per_step: int = setting(12, "Groups (prompts) of one step", gt=0)
    group_size: int = setting(8, "Rollouts of one prompt (G)", ge=2)
    max_off_policy_steps: int = setting(
        1, "Weight versions that a rollout may lag behind at dispatch; 0 is on-policy", ge=0
    )
    micro_batch_tokens: int = setting(4096, "Most padded tokens of one forward and backward pass", gt=0, advanced=True)
    batch_timeout_seconds: float = setting(
        1800.0,
        "The trainer gives up when no full batch arrives for so long; it waits at least as long as the turns of one attempt "
        "may take (sampling.episode_seconds + sampling.engine_seconds)",
        gt=0,
        advanced=True,
    )
    max_in_flight_groups: AutoInt = setting(0, "Groups dispatched and not yet accepted", ge=0, advanced=True, auto=True)
    infra_retries: int = setting(
        2, "Times that one attempt is run again after an infrastructure failure", ge=0, advanced=True
    )
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    harness: HarnessConfig = Field(default_factory=HarnessConfig)
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    reward: RewardConfig = Field(default_factory=RewardConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    textual_feedback: TextualFeedbackConfig = Field(default_factory=TextualFeedbackConfig)
    lora: LoraConfig = Field(default_factory=LoraConfig)
    mtp: MTPConfig = Field(default_factory=MTPConfig)
    orchestrator: OrchestratorConfig = Field(default_factory=OrchestratorConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)
    monitors: MonitorsConfig = Field(default_factory=MonitorsConfig)
    labels: LabelsConfig = Field(default_factory=LabelsConfig)
    curriculum: CurriculumConfig = Field(default_factory=CurriculumConfig)
    sessions: SessionsConfig = Field(default_factory=SessionsConfig)
    eval_suite: str | None = setting("held-out", "Suite evaluated before, during and after; empty for none")
    eval_every: int = setting(20, "Steps between evaluations during the run", gt=0)
    eval_tasks: int = setting(48, "Tasks of one evaluation", gt=0)
    eval_samples: int = setting(8, "Rollouts of each task before and after (K of best-of-K)", ge=1)

    @model_validator(mode="after")
    def _summary_fits(self) -> RLConfig:
        summary, context = self.harness.summary, self.sampling.max_context_tokens
        if context and summary.trigger_tokens and summary.trigger_tokens + summary.max_tokens > context:
            raise ValueError(
                f"trigger_tokens={summary.trigger_tokens} and a summary of {summary.max_tokens} tokens do not fit into "
                f"max_context_tokens={context}; lower the trigger, or harness.summary.max_tokens"
            )
        return self

    @model_validator(mode="after")
    def _window(self) -> RLConfig:
        most = self.max_window_groups
        if self.max_in_flight_groups > most:
            need = -(-(self.max_in_flight_groups - self.over_sampled_groups) // self.groups_per_step) - 1
            raise ValueError(
                f"max_in_flight_groups={self.max_in_flight_groups} needs max_off_policy_steps >= {need} "
                f"(or at most {most} groups in flight)"
            )
        if 0 < self.orchestrator.batch_window_groups < self.groups_per_step:
            raise ValueError(
                f"orchestrator.batch_window_groups={self.orchestrator.batch_window_groups} is smaller than a step "
                f"of {self.groups_per_step} groups; "
                "raise it, or 0 for the default"
            )
        return self

    @model_validator(mode="after")
    def _deadlines(self) -> RLConfig:
        own, needed = self.orchestrator.group_seconds, self.sampling.turns_seconds
        if 0 < own < needed:
            raise ValueError(
                f"orchestrator.group_seconds={own:g} ends groups whose attempts are still allowed to play: "
                f"sampling.episode_seconds={self.sampling.episode_seconds:g} and sampling.engine_seconds="
                f"{self.sampling.engine_seconds:g} add up to {needed:g}; set at least that, or 0 to derive it"
            )
        return self

    def group_deadline(self, *, after_turns: float = 0.0, waves: int = 1) -> float:
        """Seconds after which an attempt at a group is abandoned; `orchestrator.group_seconds` where it is set.

        Every legal attempt fits: the turns plus `after_turns` seconds for grading and reward, repeated `infra_retries`
        times, multiplied by `waves` where episodes wait that long for a sandbox, plus a minute or two to start.
        """
        attempt = self.sampling.turns_seconds + after_turns
        return self.orchestrator.group_seconds or START_SECONDS + waves * (1 + self.infra_retries) * attempt

    @property
    def batch_deadline(self) -> float:
        """Seconds that the trainer waits for a batch; at least as long as one attempt's turns may take."""
        return max(self.batch_timeout_seconds, self.sampling.turns_seconds)

    @property
    def max_window_groups(self) -> int:
        """Most groups in flight that `max_off_policy_steps` allows."""
        return (self.max_off_policy_steps + 1) * self.groups_per_step + self.over_sampled_groups

    @property
    def over_sampled_groups(self) -> int:
        """Groups that over-sampling keeps dispatched beyond a step's need."""
        return round(self.orchestrator.over_sampling * self.groups_per_step)

    @property
    def max_buffered_groups(self) -> int | None:
        """Number of finished groups waiting for a step at which dispatch stops; None: unbounded."""
        if not self.orchestrator.max_buffered_steps:
            return None
        return round(self.orchestrator.max_buffered_steps * self.groups_per_step) + self.over_sampled_groups

    @property
    def window_groups(self) -> int:
        """W: fewer than this many later groups may overtake a group."""
        return self.orchestrator.batch_window_groups or self.groups_per_step + int(
            0.3 * (self.max_off_policy_steps + 1) * self.groups_per_step
        )

    @property
    def staleness_limit(self) -> int:
        """Maximum staleness of a group at training time, in versions. The batch waits for a group that would exceed it."""
        return self.max_off_policy_steps + -(-self.over_sampled_groups // self.groups_per_step)
