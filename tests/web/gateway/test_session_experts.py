"""Recorded sessions of a mixture of experts hold the experts of every token, and a run on them replays these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from composer_web.gateway import configuration
from composer_web.gateway.models import Session
from composer_web.gateway.serving import recording
from composer_web.policies.promotion import services as promotion
from composer_web.policies.services import import_base
from tests.trainer.router_replay import moe
from tests.trainer.stages.memory import BASE_POLICY, foreign_policy
from tests.web.gateway import served
from tests.web.gateway.served import Gateway
from trainer.checkpoint.store import CheckpointStore
from trainer.config import SessionsConfig
from trainer.policy.store import load
from trainer.realtime.batch import Freshness, SessionRecord, build
from trainer.realtime.signals import Signal, SignalReward
from trainer.rl.backend import SingleProcess
from trainer.rl.stage import RLStage
from trainer.toy.preset import toy_rl, toy_sampling
from trainer.weights import WeightStore

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
gateway = served.gateway
ASK: Any = {"model": "production", "max_tokens": 24, "temperature": 1.0, "user": "ada"}


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """A random mixture of experts that speaks the shipped policy's tokens."""
    config = load(BASE_POLICY).model.config
    sizes = moe.BASE | {"vocab_size": config.vocab_size, "max_position_embeddings": config.max_position_embeddings}
    made = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, num_experts=moe.EXPERTS, moe_intermediate_size=24, head_dim=16))
    return foreign_policy(tmp_path / "mixture", made)


def play(gateway: Gateway, *, turns: int = 3, stream: bool = False) -> None:
    """A conversation in one recorded session."""
    client = gateway.client()
    messages: list[Any] = [{"role": "user", "content": "Fix the loop."}]
    for number in range(turns):
        asked = {**ASK, "seed": number, "metadata": {"session_id": "s", "record": "yes"}}
        if stream:
            chunks = client.chat.completions.create(messages=messages, stream=True, **asked)
            said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        else:
            said = client.chat.completions.create(messages=messages, **asked).choices[0].message.content or ""
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Go on."}]


@pytest.mark.parametrize("stream", [False, True])
def test_every_token_of_a_session_has_its_experts_and_a_run_replays_them(
    gateway: Gateway, mixture: Path, tmp_path: Path, stream: bool
) -> None:
    import_base(path=mixture, name="mixture", toy=True)
    promotion.promote(reference="mixture@0")
    configuration.change(values={"recording": True})
    play(gateway, stream=stream)
    turns = recording.turns_of(Session.objects.get())
    starts = [turn.experts.start for turn in turns if turn.experts]
    assert len(starts) == 3 and starts[0] == 0, "a turn repeats nothing of what an earlier one holds"
    assert all(turn.base is None or start > 0 for turn, start in zip(turns, starts, strict=True))
    record = SessionRecord("0", 0, tuple(turns), tuple(Signal(kind="accept", turn=turn.index) for turn in turns[:1]))
    reject = record.__class__("1", 1, tuple(turns), (Signal(kind="reject", turn=0),))
    fresh = Freshness(start=0, max_off_policy_steps=1, temperature=1.0)
    groups = build([record, reject], SignalReward(), fresh, step=1).groups
    for sample in (sample for group in groups for sample in group.samples):
        assert sample.experts is not None
        rows = sample.experts.unpack()
        assert rows.shape == (len(sample.tokens) - 1, 3, moe.TOP_K) and int(rows.max()) < moe.EXPERTS
        assert all(len(set(chosen)) == moe.TOP_K for chosen in np.reshape(rows, (-1, moe.TOP_K)).tolist())
    config = toy_rl(
        sessions=SessionsConfig(channel="production"), sampling=toy_sampling(temperature=1.0), groups_per_step=2
    )
    backend = SingleProcess(
        policy_dir=mixture,
        config=config,
        seed=1,
        store=WeightStore(tmp_path / "weights", dtype="float32"),
        checkpoints=CheckpointStore(tmp_path / "checkpoints", keep=1),
    )
    values = RLStage(backend, config, seed=1).train(groups)
    lengths = [len(sample.tokens) for group in groups for sample in group.samples]
    assert values["routing/replayed"] == pytest.approx(1 - len(lengths) / sum(lengths)), (
        "all but the last, which nobody read"
    )
    assert values["routing/differs"] < 0.01, "the trainer's router agrees with the engine's on the same weights"
    assert values["mismatch/k3_mean"] < 1e-3


def test_nothing_is_asked_for_what_is_not_recorded(gateway: Gateway, mixture: Path) -> None:
    import_base(path=mixture, name="mixture", toy=True)
    promotion.promote(reference="mixture@0")
    play(gateway, turns=2)
    assert not Session.objects.exists()
    configuration.change(values={"recording": True})
    play(gateway, turns=2)
    first = recording.turns_of(Session.objects.get())[0]
    assert first.experts is not None and first.experts.start == 0, "what was not recorded before is asked for now"
