"""The toy's settings: stages as the demo, the tests and the benches run them on the 0.9 M-parameter policy."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from trainer.config import (
    HarnessConfig,
    MidtrainConfig,
    OptimizerConfig,
    ParallelConfig,
    RLConfig,
    RunConfig,
    SamplingConfig,
    SFTConfig,
    Stage,
)
from trainer.defaults import Facts, Model, derive
from trainer.defaults.derive import TOY_RATE, TOY_RL_RATE, TOY_SAMPLING

AnyStage = TypeVar("AnyStage", MidtrainConfig, SFTConfig, RLConfig)
FACTS = Facts(Model(parameters=900_000, toy=True))


def toy_sampling(**changes: Any) -> SamplingConfig:
    """Limits of the toy's episodes."""
    return SamplingConfig(**(TOY_SAMPLING | changes))


def toy_harness(**changes: Any) -> HarnessConfig:
    """The toy's tools; its episodes end at a call that does not parse."""
    own: dict[str, Any] = {"profile": "toy", "end_on_malformed_call": True}
    return HarnessConfig(**(own | changes))


def toy_rl(**changes: Any) -> RLConfig:
    """RL on the toy."""
    given = {
        "sampling": toy_sampling(),
        "harness": toy_harness(),
        "optimizer": OptimizerConfig(learning_rate=TOY_RL_RATE),
        "parallel": ParallelConfig(precision="float32"),
    }
    return for_toy(RLConfig(**(given | changes)))


def toy_sft(**changes: Any) -> SFTConfig:
    """SFT on the toy, with Muon."""
    return for_toy(SFTConfig(**(_supervised() | changes)))


def toy_midtrain(**changes: Any) -> MidtrainConfig:
    """Mid-training of the toy, with Muon."""
    return for_toy(MidtrainConfig(**(_supervised() | changes)))


def for_toy(stage: AnyStage) -> AnyStage:
    """`stage` with the toy's values for its automatic settings."""
    found: Stage = derive(RunConfig(name="toy", stage=stage), FACTS).config.stage
    return cast(AnyStage, found)


def _supervised() -> dict[str, Any]:
    return {"optimizer": OptimizerConfig(name="muon", learning_rate=TOY_RATE)}
