"""Runs that train on recorded sessions, and the guards of runs and of the canary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_web.accounts.models import User
from composer_web.core.queue import leases
from composer_web.env import REPOSITORY
from composer_web.gateway import configuration
from composer_web.gateway.models import Session, SignalRow
from composer_web.gateway.serving import recording
from composer_web.gateway.sessions.canary import watch_canary
from composer_web.policies.models import Policy
from composer_web.policies.promotion import services as promotion
from composer_web.policies.services import record_checkpoint
from composer_web.rollouts.dispatch.services import pump
from composer_web.runs import services
from composer_web.runs.training.sessions import GuardBroken, SessionGroupSource
from composer_web.runs.training.trainer_bridge import DatabaseSink, RunControl
from sandbox.harness.types import ToolCall
from tests.web.making import SMALL
from trainer.checkpoint.store import CheckpointStore
from trainer.config import RLConfig, RunConfig, SessionsConfig
from trainer.errors import BatchTimeout, StageError
from trainer.rl.backend import SingleProcess
from trainer.rl.stage import RLStage
from trainer.toy.preset import toy_sampling
from trainer.weights import WeightStore

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]
BASE = REPOSITORY / "policies" / "base"


EDIT = (ToolCall(id="c", name="edit_file", arguments={"path": "a"}),)


def a_run(people: dict[str, User], **sessions: Any) -> RunControl:
    stage = SMALL.model_copy(
        update={
            "sessions": SessionsConfig(channel="production", settle_minutes=0.0, **sessions),
            "sampling": toy_sampling(temperature=1.0),
        }
    )
    run = services.create_run(config=RunConfig(name="real time", seed=1, policy="base", stage=stage))
    services.start_run(run=run)
    services.mark_running(run=run, owner="trainer@test")
    services.record_version(run=run, version=0)
    assert pump(run_id=run.pk) == 0, "users make the rollouts of such a run"
    held = leases.take(f"run:{run.pk}", owner="trainer", seconds=60)
    assert held is not None
    return RunControl(run, held)


def test_a_run_trains_on_sessions_and_repeats_its_batches(
    exchange: Callable[..., recording.Exchange], people: dict[str, User], tmp_path: Path
) -> None:
    control = a_run(people)
    source = SessionGroupSource(control, DatabaseSink(control))
    with pytest.raises(BatchTimeout, match=r"fewer than 2 sessions of base@0 on production"):
        source.next_batch(1, timeout=0.0)
    recording.record(exchange("Fix it", session="liked", calls=EDIT))
    recording.record(exchange("Fix it", session="broken", calls=(ToolCall(id="c", name="nowhere", arguments={}),)))
    recording.record(exchange("Fix it", session="silent"))
    liked = Session.objects.get(client_id="liked")
    SignalRow.objects.create(session=liked, client_id="1", kind="accept", turn=0)
    first = source.next_batch(1, timeout=5)
    assert [group.rewards for group in first] == [[1.0], [-1.0]], "the broken call is there without any signal"
    assert source.flow()["sessions/malformed_rate"] == 0.5 and source.flow()["sessions/staleness"] == 0
    SignalRow.objects.create(session=liked, client_id="2", kind="reject", turn=0)
    assert source.next_batch(1, timeout=5) == first, "what came later does not change a recorded batch"
    config = control.run.configuration.stage
    assert isinstance(config, RLConfig)
    backend = SingleProcess(
        policy_dir=BASE,
        config=config,
        seed=1,
        store=WeightStore(tmp_path / "weights", dtype="float32"),
        checkpoints=CheckpointStore(tmp_path / "checkpoints", keep=1),
    )
    stage = RLStage(backend, config, seed=1)
    before = {name: tensor.clone() for name, tensor in stage.learner.weights().items()}
    values = stage.train(first)
    assert values["tokens/trained"] > 0 and values["reward/mean"] == 0.0
    assert any(not before[name].equal(tensor) for name, tensor in stage.learner.weights().items())
    DatabaseSink(control).streams(
        stage.learner.streams(first, step=1)
    )  # sessions have no group: nothing is kept for the lens
    recording.delete(session=liked, actor=people["operator"])
    with pytest.raises(StageError, match="1 sessions of step 1 were erased"):
        source.next_batch(1, timeout=5)


def test_guards_stop_a_run_and_end_a_canary(
    exchange: Callable[..., recording.Exchange], people: dict[str, User], base: Policy
) -> None:
    control = a_run(people, min_turns=3)
    record_checkpoint(policy=base, version=1, path=BASE, final=False)
    promotion.promote(reference="base@1")
    promotion.canary(reference="base@0", share=0.5)
    for n in range(3):
        recording.record(exchange("Fix it", session=f"before{n}", version=1, calls=EDIT))
        recording.record(exchange("Fix it", "Which file?", session=f"now{n}"))
    with pytest.raises(GuardBroken, match=r"turns that edit fell from 100\.0% to 0\.0%; .*only ask rose"):
        SessionGroupSource(control, DatabaseSink(control)).next_batch(1, timeout=5)
    assert watch_canary() is None, "too few turns by default"
    configuration.change(values={"canary": {"min_turns": 3}})
    ended = watch_canary()
    assert ended is not None and "ended by its guard" in ended.note and "turns that edit fell" in ended.note
    now = promotion.current()
    assert now is not None and (now.version, now.canary_policy) == (1, None)
    assert watch_canary() is None
