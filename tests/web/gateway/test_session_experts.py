"""Recorded sessions of a mixture-of-experts policy: what cannot be replayed is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_web.runs.training.stages import refuse_sessions_with_experts
from tests.trainer.router_replay import moe
from tests.trainer.stages.memory import BASE_POLICY
from trainer.config import RLConfig, SamplingConfig, SessionsConfig
from trainer.errors import StageError


def test_replay_of_sessions_that_hold_no_experts_is_refused(tmp_path: Path) -> None:
    moe.make("qwen3-moe").config.save_pretrained(tmp_path)
    wanted = RLConfig(sessions=SessionsConfig(channel="live"))
    with pytest.raises(StageError, match=r"set sampling.enable_router_replay to false"):
        refuse_sessions_with_experts(wanted, tmp_path)
    refuse_sessions_with_experts(wanted, BASE_POLICY)
    refuse_sessions_with_experts(RLConfig(), tmp_path)
    without = wanted.model_copy(update={"sampling": SamplingConfig(enable_router_replay=False)})
    refuse_sessions_with_experts(without, tmp_path)
