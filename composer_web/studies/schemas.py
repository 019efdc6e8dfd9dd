"""A mid-training study as it is asked for: by the page, the API and the command line."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationError, field_validator, model_validator

from composer_web.api.schemas import Body
from composer_web.studies.levels import LEVELS
from trainer.config import MidtrainConfig, RLConfig, RunConfig, SFTConfig
from trainer.config.parts import CODEBASE, POOL, RUN_NAME

MAX_SEEDS = 7

Seed = Annotated[int, Field(ge=0, lt=1 << 31)]


class StudyIn(Body):
    """One policy and three stages. Each level and seed is a chain of three runs."""

    name: str = Field(pattern=RUN_NAME, max_length=40, description="Name of the study and first word of its runs")
    policy: str = Field(description="Policy that every chain starts from: a name, or name@version")
    seeds: list[Seed] = Field(
        default=[0], min_length=1, max_length=MAX_SEEDS, description="A chain of each level a seed"
    )
    codebase: str = Field(
        default="",
        pattern=CODEBASE,
        description="`repository:NAME`, `environment:NAME`, `corpus:NAME` or a folder below `corpora`, whose loss is measured "
        "after mid-training and after SFT; "
        "empty: the held-out loss of SFT takes its place",
    )
    pool: str = Field(default="", pattern=POOL, description="Pool of train workers; empty: the default pool")
    midtrain: MidtrainConfig = Field(description="Its steps are those of level S; M has 3 times, L 9 times as many")
    sft: SFTConfig
    rl: RLConfig

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed is listed twice")
        return seeds

    @model_validator(mode="after")
    def _one_codebase(self) -> StudyIn:
        for name, stage in (("midtrain", self.midtrain), ("sft", self.sft)):
            if stage.codebase not in ("", self.codebase):
                raise ValueError(
                    f"{name}.codebase is {stage.codebase!r} and codebase {self.codebase!r}; leave that of the stage empty"
                )
        return self

    @model_validator(mode="after")
    def _chains(self) -> StudyIn:
        try:
            self.chain("L", max(self.seeds))
        except ValidationError as error:
            raise ValueError(str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")) from error
        return self

    def chain(self, level: str, seed: int) -> list[RunConfig]:
        """The runs of one level and seed, in order."""
        measured = {"codebase": self.codebase}
        stages = (
            (
                "mid-training",
                self.midtrain.model_copy(update={**measured, "steps": self.midtrain.steps * LEVELS[level]}),
            ),
            ("SFT", self.sft.model_copy(update=measured)),
            ("RL", self.rl),
        )
        return [
            RunConfig(
                name=f"{self.name} {level} seed {seed} {words}",
                policy=self.policy,
                seed=seed,
                pool=self.pool,
                stage=stage,
            )
            for words, stage in stages
        ]
