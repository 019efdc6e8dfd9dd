"""Automatic settings become numbers that fit the model, the tasks and the hardware; a chosen value is never changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.config import (
    HarnessConfig,
    LoraConfig,
    OptimizerConfig,
    RLConfig,
    RunConfig,
    SamplingConfig,
    SFTConfig,
    SummaryConfig,
)
from trainer.config.auto import automatic, with_values
from trainer.defaults import Facts, Model, Shape, derive
from trainer.toy.preset import TOY_SAMPLING, toy_rl

SMOL = Model(parameters=134_515_008, context=8192, shape=Shape(576, 30, 576, 192, 1536, 49152))
KNOWN = Facts(SMOL, prompt_tokens=1799, trainer_bytes=64 << 30, bfloat16=False, engine_context=8192)


def rl(facts: Facts, **settings: object) -> RLConfig:
    found = derive(RunConfig(name="x", stage=RLConfig(**settings)), facts).config.stage
    assert isinstance(found, RLConfig)
    return found


def test_a_small_real_model_gets_its_whole_context_and_every_number_has_a_reason() -> None:
    found = derive(RunConfig(name="x", stage=RLConfig()), KNOWN)
    stage = found.config.stage
    assert isinstance(stage, RLConfig) and not automatic(found.config)
    assert stage.sampling.max_context_tokens == 8192 and stage.sampling.max_turn_tokens == 1024
    assert stage.sampling.max_turns == (8192 - 1799) // 400 and stage.harness.profile == "compact"
    assert stage.optimizer.learning_rate == pytest.approx(4.9e-6) and stage.parallel.precision == "float32"
    assert stage.max_in_flight_groups == 24
    assert all(choice.reason for choice in found.choices) and len(found.choices) == 9


@pytest.mark.parametrize(
    ("facts", "context"),
    [
        (replace(KNOWN, model=replace(SMOL, context=2048)), 2048),
        (replace(KNOWN, engine_context=4096), 4096),
        (replace(KNOWN, kv_tokens=3000), 2816),
        (replace(KNOWN, trainer_bytes=8 << 30), 3072),
        (replace(KNOWN, trainer_bytes=12 << 30, engine_bytes=4 << 30), 3072),
        (Facts(replace(SMOL, context=262_144)), 32_768),
    ],
    ids=["model", "engine", "kv", "trainer", "beside the engine", "default"],
)
def test_the_tightest_limit_decides_the_context(facts: Facts, context: int) -> None:
    assert rl(facts).sampling.max_context_tokens == context


@pytest.mark.parametrize(("context", "summary", "trigger"), [(8192, 1024, 5120), (768, 192, 384), (16, 4, 8)])
def test_a_window_that_is_a_share_has_room_for_its_summary_and_work(context: int, summary: int, trigger: int) -> None:
    """The Composer preset's, down to the toy's context."""
    harness = HarnessConfig(summary=SummaryConfig(trigger_share=0.75, max_tokens=1024))
    stage = rl(KNOWN, harness=harness, sampling=SamplingConfig(max_context_tokens=context, max_turn_tokens=8))
    assert (stage.harness.summary.max_tokens, stage.harness.summary.trigger_tokens) == (summary, trigger)


def test_a_chosen_value_stays_and_the_others_follow_it() -> None:
    stage = rl(
        KNOWN,
        sampling=SamplingConfig(max_context_tokens=4096),
        optimizer=OptimizerConfig(learning_rate=2e-5),
        harness=HarnessConfig(profile="full"),
    )
    assert stage.sampling.max_context_tokens == 4096 and stage.sampling.max_turn_tokens == 512
    assert stage.optimizer.learning_rate == 2e-5 and stage.harness.profile == "full"


def test_groups_in_flight_follow_the_kv_cache() -> None:
    assert rl(replace(KNOWN, kv_tokens=8192 * 8 * 3)).max_in_flight_groups == 6
    assert rl(replace(KNOWN, kv_tokens=8192 * 8 * 300)).max_in_flight_groups == 24


def test_rates_fall_with_size_and_rise_with_adapters_and_without_rollouts() -> None:
    large = replace(KNOWN, model=replace(SMOL, parameters=30_000_000_000))
    assert rl(large).optimizer.learning_rate < 1e-6 < rl(KNOWN).optimizer.learning_rate
    assert rl(KNOWN, lora=LoraConfig(rank=8)).optimizer.learning_rate == pytest.approx(4.9e-5)
    sft = derive(RunConfig(name="x", stage=SFTConfig()), KNOWN).config.stage
    assert sft.optimizer.learning_rate == pytest.approx(4.9e-5)


def test_precision_follows_the_processor_and_stays_open_without_a_worker() -> None:
    for known, precision in ((True, "bfloat16"), (False, "float32"), (None, "auto")):
        for stage in (SFTConfig(), RLConfig()):
            found = derive(RunConfig(name="x", stage=stage), replace(KNOWN, bfloat16=known))
            assert found.config.stage.parallel.precision == precision


def test_the_summary_opens_at_its_share_of_the_context() -> None:
    summary = SummaryConfig(trigger_share=0.75, max_tokens=256)
    assert rl(KNOWN, harness=HarnessConfig(summary=summary)).harness.summary.trigger_tokens == 6144 - 256


def test_the_toy_gets_its_own_numbers() -> None:
    toy = rl(Facts(Model(900_000, toy=True)))
    assert {name: getattr(toy.sampling, name) for name in TOY_SAMPLING} == TOY_SAMPLING
    assert toy.harness.profile == "toy" and toy.optimizer.learning_rate == 3e-4
    assert toy_rl().sampling == toy.sampling


def test_auto_is_written_and_read_as_a_word() -> None:
    text = RunConfig(name="x", stage=RLConfig()).model_dump_json()
    assert '"max_context_tokens":"auto"' in text and '"learning_rate":"auto"' in text
    assert RunConfig.model_validate_json(text) == RunConfig(name="x", stage=RLConfig())
    config = with_values(RunConfig(name="x", stage=RLConfig()), {"stage.sampling.max_turns": 7})
    assert "stage.sampling.max_turns" not in automatic(config)
