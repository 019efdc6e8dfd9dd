"""Old configuration keys: read with a warning, rewritten by the migration."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import MidtrainConfig, ParallelConfig, RLConfig, RunConfig, SFTConfig
from trainer.config.renamed import RENAMED
from trainer.inference.contract import DeploymentSpec

names = importlib.import_module("composer_web.runs.migrations._config_names")
STAGES = (
    RLConfig(parallel=ParallelConfig(world_size=4, dp_shard=2, cp=2, lm_head_chunk_size=7), max_off_policy_steps=3),
    MidtrainConfig(steps=7),
    SFTConfig(steps=7),
)


def in_old_names(part: Any) -> dict[str, Any]:
    """A part's data under the names of release 0.1."""
    table = {new: old for base in type(part).__mro__ for old, new in RENAMED.get(base.__name__, {}).items()}
    return {
        table.get(name, name): in_old_names(value) if hasattr(type(value), "model_fields") else value
        for name, value in part
    }


def test_a_deployment_is_read_under_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="use num_speculative_tokens"):
        spec = DeploymentSpec.model_validate({"name": "x", "policy_dir": "p", "speculate": 2})
    assert spec.num_speculative_tokens == 2


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.kind)
def test_an_old_configuration_is_read_with_a_warning_and_rewritten(stage: Any) -> None:
    config = RunConfig(name="old", stage=stage)
    old = {**config.model_dump(), "stage": in_old_names(stage)}
    assert old != config.model_dump()
    with pytest.warns(DeprecationWarning, match="ParallelConfig: ranks is deprecated; use world_size"):
        assert RunConfig.model_validate(old) == config
    rewritten = names.new_config(old)
    assert rewritten == config.model_dump()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RunConfig.model_validate(rewritten) == config


def test_both_names_of_a_key_are_refused() -> None:
    with pytest.raises(
        ValidationError, match="ranks is the old name of world_size, and both are given; leave out ranks"
    ):
        ParallelConfig.model_validate({"ranks": 1, "world_size": 1})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stage.optimizer.clip_norm", "stage.optimizer.max_grad_norm"),
        ("stage.asynchrony.window", "stage.orchestrator.batch_window_groups"),
        ("stage.max_staleness", "stage.max_off_policy_steps"),
        ("seed", "seed"),
    ],
)
def test_fields_of_sweeps_are_rewritten(old: str, new: str) -> None:
    assert names.new_fields([[old, [1, 2]]]) == [[new, [1, 2]]]
