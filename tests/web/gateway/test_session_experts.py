"""Recorded sessions of a mixture-of-experts policy: what cannot be replayed is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_web.runs.training.stages import refuse_sessions_with_experts
from tests.trainer.router_replay import moe
from tests.trainer.stages.memory import BASE_POLICY
from trainer.config import SessionsConfig
from trainer.errors import StageError
from trainer.toy.preset import toy_rl, toy_sampling


def test_replay_of_sessions_that_hold_no_experts_is_refused(tmp_path: Path) -> None:
    moe.make("qwen3-moe").config.save_pretrained(tmp_path)
    wanted = toy_rl(sessions=SessionsConfig(channel="live"))
    with pytest.raises(StageError, match=r"set sampling.enable_router_replay to false"):
        refuse_sessions_with_experts(wanted, tmp_path)
    refuse_sessions_with_experts(wanted, BASE_POLICY)
    refuse_sessions_with_experts(toy_rl(), tmp_path)
    without = wanted.model_copy(update={"sampling": toy_sampling(enable_router_replay=False)})
    refuse_sessions_with_experts(without, tmp_path)
