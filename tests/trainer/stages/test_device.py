"""What nobody knew before a run starts is decided where it trains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trainer.defaults.test_derive import KNOWN
from trainer.config import ParallelConfig, RLConfig, RunConfig
from trainer.defaults import derive
from trainer.stages import device


@pytest.mark.parametrize(("instructions", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_without_a_worker_to_ask_the_trainer_chooses_the_precision(
    monkeypatch: pytest.MonkeyPatch, instructions: bool, precision: str
) -> None:
    monkeypatch.setattr(device, "cpu_has_bfloat16", lambda: instructions)
    stage = RLConfig(parallel=ParallelConfig(device="cpu"))
    unknown = derive(RunConfig(name="x", stage=stage), replace(KNOWN, bfloat16=None)).config.stage
    assert isinstance(unknown, RLConfig) and unknown.parallel.precision == "auto"
    found = device.placed(unknown)
    assert (found.parallel.precision, found.parallel.compute_format) == (precision, precision)
    chosen = RLConfig(parallel=ParallelConfig(device="cpu", precision="bfloat16"))
    assert device.placed(chosen).parallel.precision == "bfloat16", "a person's choice stays"
