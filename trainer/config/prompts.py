"""Which prompts a run plays or reads, and what lies between dispatch and training."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from trainer.config.guards import Guards
from trainer.config.parts import Part, setting

MIX = r"^ *([a-z]+ *= *\d+(\.\d+)? *(, *[a-z]+ *= *\d+(\.\d+)? *)*)?$"


class CurriculumConfig(Part):
    """Which tasks of the suite a run uses, and in which order. Pass rates are those of a pre-pass (an evaluation)."""

    policy: str = setting("", "Policy whose pre-pass is used (a name); empty for the newest measurement of any")
    min_pass_rate: float = setting(0.0, "Least pass rate of a task that is used", ge=0, le=1)
    max_pass_rate: float = setting(1.0, "Greatest pass rate of a task that is used", ge=0, le=1)
    drop_solved_none: bool = setting(False, "Leave out tasks that the pre-pass never solved")
    drop_solved_all: bool = setting(False, "Leave out tasks that the pre-pass always solved")
    unmeasured: Literal["use", "skip"] = setting("use", "Tasks without a pre-pass", advanced=True)
    easy_to_hard: float = setting(
        0.0, "Draw easier tasks at the beginning and harder ones at the end; 0 keeps the seeded order", ge=0, le=1
    )
    difficulty: Literal["pass_rate", "effort"] = setting(
        "pass_rate",
        "What makes a task hard: its pass rate, or pass rate, turns and thinking tokens of the pre-pass in equal parts",
        advanced=True,
    )
    harder: float = setting(
        0.0, "Draw harder tasks more often throughout; 0 draws all alike", ge=0, le=1, advanced=True
    )
    categories: str = setting(
        "", "Mix of categories as `debug=3, feature=1`; empty for the suite's own", pattern=MIX, advanced=True
    )

    @property
    def weights(self) -> dict[str, float]:
        pairs = (part.split("=") for part in self.categories.replace(" ", "").split(",") if part)
        return {name: float(weight) for name, weight in pairs}

    @model_validator(mode="after")
    def _window(self) -> CurriculumConfig:
        if self.min_pass_rate > self.max_pass_rate:
            raise ValueError(
                f"min_pass_rate={self.min_pass_rate} is above max_pass_rate={self.max_pass_rate}: no task lies between them"
            )
        return self


class OrchestratorConfig(Part):
    """What lies between dispatch and training. With `max_off_policy_steps` 0 and no over-sampling none of it changes a bit."""

    over_sampling: float = setting(
        0.0,
        "Groups dispatched beyond what a step needs, as a share of it; the surplus is trained in the next step and "
        "lags by up to one version more",
        ge=0,
        le=1,
    )
    max_buffered_steps: float = setting(
        1.0,
        "Finished groups at which no more are dispatched, in steps' worth: what waits to be trained grows old. 0: no "
        "bound but max_off_policy_steps",
        ge=0,
    )
    adaptive_concurrency: bool = setting(True, "Fewer groups in flight while the inference engine has a queue")
    straggler_policy: Literal["wait", "trim"] = setting(
        "wait",
        "A group's slow attempts are waited for, or cut once most of the group has ended (long attempts are then missing)",
    )
    straggler_timeout_factor: float = setting(
        4.0,
        "Times the median attempt of its group that an attempt may take before it is cut (trim)",
        gt=1,
        advanced=True,
    )
    straggler_min_share: float = setting(
        0.75,
        "Share of a group's attempts that must have ended before the rest is cut (trim)",
        gt=0,
        le=1,
        advanced=True,
    )
    batch_window_groups: int = setting(
        0,
        "How far a finished group may overtake the oldest unfinished one, in groups; 0: a step and 30 % of what may be out",
        ge=0,
        advanced=True,
    )
    group_seconds: float = setting(
        0.0,
        "Longest that one try of a group may take, in place of the sum of its own limits: episode_seconds, engine_seconds, "
        "grading and reward for each attempt, infra_retries included; never less than one attempt and its grading; 0: that sum",
        ge=0,
        advanced=True,
    )
    circuit_breaker_losses: int = setting(
        5, "Groups lost one after another for reasons of ours at which the run pauses; 0 never", ge=0, advanced=True
    )
    max_non_finite_steps: int = setting(
        0,
        "Steps in a row whose gradients are NaN or infinite that leave the weights as they are; one more stops the run",
        ge=0,
        advanced=True,
    )
    resume_rollouts: bool = setting(
        True,
        "An attempt whose worker was lost goes on from its last snapshot, where the harness keeps any",
        advanced=True,
    )

    @field_validator("max_buffered_steps")
    @classmethod
    def _a_step_at_least(cls, steps: float) -> float:
        if 0 < steps < 1:
            raise ValueError(
                f"a step could never be filled with {steps:g} of its groups; set 1 or more, or 0 for no bound"
            )
        return steps


class Served(Part):
    """Which recorded sessions a run is trained on."""

    channel: str = setting(
        "", "Channel whose recorded sessions are trained on; empty: the run plays tasks", pattern=r"^[a-z0-9-]{0,40}$"
    )
    settle_minutes: float = setting(
        30.0, "Minutes after a session's last turn before it is trained on: signals come late", ge=0, advanced=True
    )
    max_redacted_share: float = setting(
        0.05, "Largest share of a session's tokens that may be redacted", ge=0, le=1, advanced=True
    )
    guard: Literal["stop", "alert"] = setting(
        "stop", "What a guard on the rates does: the run stops, or only an alert is raised"
    )


class SessionsConfig(Guards, Served):
    """Training on recorded sessions of the gateway in place of tasks; a step is `groups_per_step` sessions, one rollout
    of each prompt. `max_off_policy_steps` bounds how far behind the starting version they were served."""
