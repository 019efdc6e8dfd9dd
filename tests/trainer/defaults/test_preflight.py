"""A configuration that cannot learn is refused with the setting and a remedy; sound ones pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trainer.defaults.test_derive import KNOWN, SMOL
from trainer.config import (
    HarnessConfig,
    LoraConfig,
    MidtrainConfig,
    RLConfig,
    RunConfig,
    SamplingConfig,
    SummaryConfig,
)
from trainer.defaults import Facts, Problem, derive, preflight


def problems(facts: Facts, stage: RLConfig | MidtrainConfig | None = None) -> list[Problem]:
    return preflight(derive(RunConfig(name="x", stage=stage or RLConfig()), facts).config, facts)


def test_what_was_derived_passes() -> None:
    assert problems(KNOWN) == []
    assert problems(Facts(SMOL)) == []


@pytest.mark.parametrize(
    ("facts", "sampling", "words"),
    [
        (KNOWN, {"max_context_tokens": 768}, "opening prompt"),  # what the toy's defaults did to a real model
        (replace(KNOWN, engine_context=2048), {"max_context_tokens": 8192}, "engine serves at most 2,048"),
        (KNOWN, {"max_context_tokens": 16_384}, "rotary embedding covers 8,192"),
        (replace(KNOWN, kv_tokens=6000), {"max_context_tokens": 8192}, "KV cache holds 6,000"),
    ],
    ids=["prompt", "engine", "model", "kv"],
)
def test_a_context_that_cannot_work_is_refused(facts: Facts, sampling: dict[str, int], words: str) -> None:
    found = problems(facts, RLConfig(sampling=SamplingConfig(**sampling)))
    assert found[0].fatal and found[0].field == "stage.sampling.max_context_tokens"
    assert any(words in problem.message for problem in found)


def test_a_longer_prompt_of_the_evaluation_suite_is_refused_at_its_own_field() -> None:
    facts = replace(KNOWN, eval_prompt_tokens=7800, eval_prompt_task="long one")
    (found,) = problems(facts, RLConfig(eval_suite="held-out"))
    assert found.fatal and found.field == "stage.eval_suite"
    assert "evaluation suite (task long one) has 7,800 tokens" in found.message and "at least 8,824" in found.message
    assert problems(facts, RLConfig(eval_suite=None)) == []
    assert problems(replace(facts, eval_prompt_tokens=1799), RLConfig(eval_suite="held-out")) == []


def test_a_summary_that_every_turn_triggers_is_refused() -> None:
    harness = HarnessConfig(summary=SummaryConfig(trigger_tokens=1800))
    (found,) = problems(KNOWN, RLConfig(harness=harness))
    assert found.field == "stage.harness.summary.trigger_tokens" and "after one turn" in found.message


def test_a_model_larger_than_the_trainer_is_refused_and_adapters_may_fit() -> None:
    small = replace(KNOWN, trainer_bytes=2 << 30, model=replace(SMOL, shape=None))
    (found,) = problems(small)
    assert found.field == "policy" and "2.0 GiB" in found.message and "lora.rank" in found.message
    assert problems(small, RLConfig(lora=LoraConfig(rank=8))) == []


def test_trainer_and_engine_of_one_machine_must_fit_together() -> None:
    both = replace(KNOWN, trainer_bytes=4 << 30, engine_bytes=3 << 30, model=replace(SMOL, shape=None))
    (found,) = problems(both)
    assert found.field == "policy" and "the inference engine beside it 3.0 GiB" in found.message
    assert "kv_cache_mib" in found.message and found.fatal
    assert problems(replace(both, engine_bytes=0)) == []
    assert problems(both, MidtrainConfig()) == [], "mid-training needs no engine"


def test_rows_beyond_the_rotary_embedding_are_refused() -> None:
    (found,) = problems(KNOWN, MidtrainConfig(seq_len=16_384))
    assert found.field == "stage.seq_len" and found.fatal


def test_a_tight_kv_cache_is_a_warning() -> None:
    (found,) = problems(replace(KNOWN, kv_tokens=9000))
    assert not found.fatal and found.field == "stage.group_size"
