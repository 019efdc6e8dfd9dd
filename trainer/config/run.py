"""One configured run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from trainer.config.parts import POOL, RUN_NAME, Part, setting
from trainer.config.rl import RLConfig
from trainer.config.supervised import MidtrainConfig, SFTConfig

Stage = Annotated[MidtrainConfig | SFTConfig | RLConfig, Field(discriminator="kind")]


class RunConfig(Part):
    """One configured run: what it starts from, its seed, and its stage."""

    name: str = Field(pattern=RUN_NAME, description="Name shown everywhere")
    policy: str = setting("base", "Policy to start from (a name, or name@version)")
    seed: int = setting(0, "Seed of prompt order, sampling and initialisation", ge=0)
    pool: str = setting(
        "",
        "Pool of train workers that trains it, one a kind of GPU: workers of the queue train.POOL; empty: the default pool",
        pattern=POOL,
        advanced=True,
    )
    stage: Stage

    @model_validator(mode="after")
    def _moments(self) -> RunConfig:
        if self.stage.optimizer.state_dtype == "int8" and self.stage.parallel.world_size > 1:
            raise ValueError(
                "stage.optimizer.state_dtype=int8 needs parallel.world_size=1: ranks share the moments already, which are "
                "stored in float32; choose one of the two"
            )
        return self
