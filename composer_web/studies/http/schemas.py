"""API schemas of mid-training studies."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field


class StudyOut(Schema):
    id: int
    name: str
    policy: str
    codebase: str = Field(description="Empty where the held-out loss of SFT takes its place")
    seeds: list[int]
    runs: int
    live: int
    finished: int
    failed: int = Field(description="Runs that failed or were cancelled")
    created_by: str | None
    created_at: datetime

    @staticmethod
    def resolve_policy(study: Any) -> str:
        return str(study.wanted["policy"])

    @staticmethod
    def resolve_codebase(study: Any) -> str:
        return str(study.wanted["codebase"])

    @staticmethod
    def resolve_seeds(study: Any) -> list[int]:
        return list(study.wanted["seeds"])

    @staticmethod
    def resolve_runs(study: Any) -> int:
        return int(study.run_count)

    @staticmethod
    def resolve_live(study: Any) -> int:
        return int(study.live_count)

    @staticmethod
    def resolve_finished(study: Any) -> int:
        return int(study.finished_count)

    @staticmethod
    def resolve_failed(study: Any) -> int:
        return int(study.failed_count)

    @staticmethod
    def resolve_created_by(study: Any) -> str | None:
        return study.created_by.username if study.created_by else None


class StageOut(Schema):
    id: int
    name: str
    state: str
    step: int
    steps_total: int


class ChainOut(Schema):
    level: str = Field(description="S, M or L: 1, 3 and 9 times the steps of mid-training")
    seed: int
    midtrain: StageOut
    sft: StageOut
    rl: StageOut
    heldout_loss: float | None = Field(description="After mid-training, in nats per token; null until it is known")
    codebase_loss: float | None = Field(description="After mid-training, on the codebase")
    sft_loss: float | None = Field(description="After SFT, on the codebase or, without one, on its held-out data")
    reward: float | None = Field(description="Mean over the last steps of RL")
    pass1: float | None = Field(description="Held-out pass@1 of the final policy, where RL evaluates")
    missing: str = Field(description="Why it is no point of the correlation; empty if it is one")


class StudyDetail(Schema):
    study: StudyOut
    wanted: dict[str, Any] = Field(description="As it was asked for: what POST /studies takes")
    chains: list[ChainOut]
    measured: str = Field(description="Metric that is the loss after SFT: loss/codebase or loss/heldout")
    points: int = Field(description="Chains with both a loss and a reward")
    correlation: float | None = Field(
        description="Spearman's rank correlation of minus the loss after SFT and the reward; null where it is not defined"
    )
    correlation_within_seeds: float | None = Field(
        description="Mean of the correlations of each seed; null with one seed"
    )
