"""The trainer's side: batches are assigned once and repeated exactly; reports become rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from composer_web.core.queue import leases
from composer_web.policies.models import Policy
from composer_web.policies.services import real_path
from composer_web.rollouts.dispatch import batches
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs import services
from composer_web.runs.charts.series import buckets
from composer_web.runs.models import Run, TrainBatch
from composer_web.runs.paths import deployment_name, weights_folder
from composer_web.runs.training.clusters import clusters
from composer_web.runs.training.trainer_bridge import DatabaseGroupSource, DatabaseSink, Interrupted, RunControl
from composer_web.tasks.models import Suite
from sandbox.grading.verdict.outcomes import Cause, Loss
from tests.web.making import SMALL, claim, finish, take_run, train_here
from trainer.config import OrchestratorConfig, RunConfig
from trainer.errors import BatchTimeout
from trainer.inference.contract import DeploymentStatus, ServerHealth
from trainer.orchestrator.batch_scheduler import BatchSchedule
from trainer.weights import WeightStore
from trainer.weights.async_publish import Background

pytestmark = pytest.mark.django_db


@pytest.fixture
def control(running: Run) -> RunControl:
    held = leases.take(f"run:{running.pk}", owner="trainer", seconds=60)
    assert held is not None
    rollouts.pump(run_id=running.pk)
    return RunControl(running, held)


def accept(run: Run, *prompts: int) -> None:
    for group in Group.objects.filter(run=run, prompt_index__in=prompts):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])


def test_a_batch_is_oldest_first_and_repeated_exactly(control: RunControl) -> None:
    run = control.run
    source = DatabaseGroupSource(control)
    accept(run, 2, 0, 3)
    first = source.next_batch(1, timeout=5)
    assert [g.prompt_index for g in first] == [0, 2]
    assert first[0].rewards == [1.0, 0.0]
    assert Group.objects.filter(run=run, state="consumed", consumed_step=1).count() == 2
    accept(run, 1)
    assert source.next_batch(1, timeout=5) == first  # a resumed trainer asks again
    assert [g.prompt_index for g in source.next_batch(2, timeout=5)] == [1, 3]
    assert TrainBatch.objects.filter(run=run).count() == 2


def test_a_group_about_to_become_too_stale_is_waited_for(control: RunControl) -> None:
    source = DatabaseGroupSource(control)
    accept(control.run, 0, 2)
    source.next_batch(1, timeout=5)
    services.record_version(run=control.run, version=1)
    rollouts.pump(run_id=control.run.pk)
    accept(control.run, 3)
    # Prompt 1 was dispatched at version 0; trained in step 3 it would lag 2 versions, and 1 is allowed.
    batches.want(run=control.run, held=control.held, step=2)
    assert not batches.assign(run_id=control.run.pk)
    accept(control.run, 1)
    assert [g.prompt_index for g in source.next_batch(2, timeout=5)] == [1, 3]


def test_a_group_with_tokens_that_are_too_old_is_never_in_a_batch(control: RunControl) -> None:
    """Its engine lagged: what it was dispatched at says nothing of its tokens."""
    run = control.run
    for group in Group.objects.filter(run=run):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False], oldest=0 if group.prompt_index < 2 else 1)
    assert [g.prompt_index for g in DatabaseGroupSource(control).next_batch(3, timeout=5)] == [2, 3]
    dropped = Group.objects.filter(run=run, state="dropped").order_by("prompt_index")
    assert [group.prompt_index for group in dropped] == [0, 1]
    assert "more than 1 before version 2, which step 3 trains" in dropped[0].cause
    assert run.events.filter(kind="infra", message__contains="is dropped").count() == 2
    assert Group.objects.filter(run=run, prompt_index__gte=4).count() == 2, "others take their place"


def test_too_few_groups_end_in_a_named_timeout(control: RunControl) -> None:
    accept(control.run, 0)
    with pytest.raises(BatchTimeout, match=r"fewer than 2 groups were accepted within 0\.3 s; .*health page"):
        DatabaseGroupSource(control).next_batch(1, timeout=0.3)


def test_a_cancelled_run_ends_the_wait(control: RunControl) -> None:
    services.cancel_run(run=control.run)
    assert control.should_stop()
    with pytest.raises(Interrupted):
        DatabaseGroupSource(control).next_batch(1, timeout=30)


def test_a_trainer_without_its_lease_assigns_nothing(control: RunControl) -> None:
    accept(control.run, 0, 1)
    leases.release(control.held)
    with pytest.raises(leases.LeaseLost):
        DatabaseGroupSource(control).next_batch(1, timeout=5)
    assert not TrainBatch.objects.exists()
    assert Group.objects.filter(state="accepted").count() == 2


def test_reports_become_rows(control: RunControl) -> None:
    run, sink = control.run, DatabaseSink(control)
    sink.metrics(1, {"reward/mean": 0.25})
    sink.progress(1, 2)
    sink.version_published(1, "sha256:x", {"weights/bytes": 7.0})
    sink.event("warning", "look here", {"why": 1})
    run.refresh_from_db()
    assert (run.step, run.steps_total, run.policy_version) == (1, 2, 1)
    assert run.latest == {"reward/mean": 0.25, "weights/bytes": 7.0}
    assert [b.value for b in buckets(run, ["reward/mean"])["reward/mean"]] == [0.25]
    assert run.events.get(level="warning").data == {"why": 1}
    sink.version_published(0, "sha256:w", {})  # a replay after a resume never takes the version back
    run.refresh_from_db()
    assert run.policy_version == 1


@pytest.mark.django_db(transaction=True)
def test_versions_are_told_of_from_the_thread_that_writes_them(
    policy: Policy, make_suite: Callable[..., Suite]
) -> None:
    """Groups are admitted by the version while the trainer's own thread computes, and nothing of the thread is left."""
    make_suite()
    stage = SMALL.model_copy(update={"steps": 4})
    run = services.create_run(config=RunConfig(name="four steps", stage=stage))
    services.start_run(run=run)
    services.mark_running(run=run, owner="trainer@test")
    held = leases.take(f"run:{run.pk}", owner="trainer", seconds=60)
    assert held is not None
    control = RunControl(run, held)
    sink, publishing = DatabaseSink(control), Background("publishing")
    sink.version_published(0, "sha256:w", {})
    there: list[BaseDatabaseWrapper] = []

    def publish() -> None:
        there.append(connections["default"])
        sink.version_published(1, "sha256:x", {"weights/bytes": 7.0})

    accept(run, 0, 1)
    DatabaseGroupSource(control).next_batch(1, timeout=5)
    assert not Group.objects.filter(run=run, dispatched_version=1).exists(), "the gate is shut"
    publishing.begin(publish)
    publishing.wait()
    run.refresh_from_db()
    assert (run.policy_version, run.latest) == (1, {"weights/bytes": 7.0})
    assert Group.objects.filter(run=run, dispatched_version=1).count() == 2
    assert there[0] is not connection and there[0].connection is None, "its connection went back"
    # Once another trainer has the run, the trainer's thread hears of it, and nothing was written.
    leases.release(control.held)
    publishing.begin(lambda: sink.version_published(2, "sha256:y", {"weights/bytes": 8.0}))
    with pytest.raises(leases.LeaseLost):
        publishing.wait()
    run.refresh_from_db()
    assert (run.policy_version, run.latest) == (1, {"weights/bytes": 7.0})


def test_a_checkpoint_is_recorded_and_removed_ones_are_marked(control: RunControl, tmp_path) -> None:  # type: ignore[no-untyped-def]
    sink = DatabaseSink(control)
    for step in (1, 2):
        folder = tmp_path / f"step-{step:06d}" / "policy"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        sink.checkpoint_saved(step, folder.parent, final=step == 2)
        sink.checkpoint_saved(step, folder.parent, final=step == 2)
        if step == 1:
            (folder / "config.json").unlink()
            folder.rmdir()
    rows = control.run.policy_out.checkpoints.order_by("version")  # type: ignore[union-attr]
    assert [(c.version, c.kind, c.removed_at is None) for c in rows] == [(1, "step", False), (2, "final", True)]


def test_a_run_that_keeps_killing_its_trainer_is_given_up_unless_it_gets_on(running: Run, tmp_path: Path) -> None:
    Run.objects.filter(pk=running.pk).update(lost_in_a_row=9, recoveries=25)
    held = take_run(running)
    assert held is not None
    folder = tmp_path / "step-000001" / "policy"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    running.refresh_from_db()
    assert (running.lost_in_a_row, running.recoveries) == (10, 26)
    DatabaseSink(RunControl(running, held)).checkpoint_saved(1, folder.parent, final=False)
    leases.release(held)
    again = take_run(running)
    assert again is not None, "it got to another checkpoint"
    leases.release(again)
    Run.objects.filter(pk=running.pk).update(lost_in_a_row=10)
    assert take_run(running) is None
    running.refresh_from_db()
    assert running.state == "failed" and "lost 10 times since the last checkpoint" in running.failure
    services.resume_run(run=running)
    assert take_run(running) is not None


def test_a_run_whose_weights_are_gone_fails_with_words(running: Run, policy: Policy) -> None:
    (real_path(policy.base_dir) / "config.json").unlink()
    train_here(running)
    assert running.state == "failed" and "no weights on disk" in running.failure


def test_a_finished_group_overtakes_only_inside_the_window(control: RunControl) -> None:
    run = control.run
    accept(run, 2, 3)

    def chosen(step: int, window: int) -> BatchSchedule:
        stage = DatabaseGroupSource(control).stage.model_copy(
            update={"orchestrator": OrchestratorConfig(batch_window_groups=window)}
        )
        return batches.choice(run, stage, step)[0]

    assert chosen(1, window=3) == BatchSchedule(None, waits_for=(0,))  # prompt 3 is outside the window of the oldest, 0
    assert chosen(1, window=4).batch == (2, 3)
    rollouts.consume(run=run, group_ids=[g.pk for g in run.groups.filter(prompt_index__in=[2, 3])], step=1)
    accept(run, 0)
    assert chosen(2, window=4) == BatchSchedule(None, waits_for=(1,))  # prompt 1 would be the batch's second


def test_flow_counts_what_came_in_and_what_went_out(control: RunControl) -> None:
    source = DatabaseGroupSource(control)
    accept(control.run, 0, 1, 2)
    source.next_batch(1, timeout=5)
    rollouts.drop(
        group=Group.objects.get(run=control.run, prompt_index=3),
        loss=Loss(Cause.QUARANTINED, "dropped: 2 of 2 are in quarantine"),
    )
    assert source.flow() == {
        "groups/dispatched": 5.0,  # the dropped one was replaced
        "groups/accepted": 3.0,
        "groups/dropped": 1.0,
        "groups/dropped/quarantined": 1.0,
        "groups/in_flight": 1.0,
        "groups/surplus": 1.0,
        "concurrency/limit": 4.0,
    }


def test_an_engine_that_holds_other_weights_than_it_says_is_reported_once(control: RunControl) -> None:
    sink = DatabaseSink(control)
    sink.version_published(0, "sha256:right", {})

    def health(version: int, digest: str) -> ServerHealth:
        served = {"name": deployment_name(control.run), "version": version, "digest": digest, "state": "serving"}
        return ServerHealth.model_validate(
            {"ok": True, "engine": "embedded", "deployments": [served | {"follow": True}]}
        )

    sink.engines.saw(health(0, "sha256:right").deployments[0])
    assert not control.run.events.filter(level="error").exists()
    for _ in range(2):
        sink.engines.saw(health(0, "sha256:wrong").deployments[0])
        sink.engines.saw(health(9, "sha256:right").deployments[0])
    messages = list(control.run.events.filter(level="error").order_by("pk").values_list("message", flat=True))
    assert len(messages) == 2
    assert "version 0 and holds other weights" in messages[0]
    assert "version 9 and holds a version that was never published" in messages[1]


def test_an_engine_may_see_a_version_before_it_is_told_of(control: RunControl) -> None:
    """It follows the weight store, and the trainer looks at it while another thread is about to tell of the version."""
    sink = DatabaseSink(control)
    sink.version_published(0, "sha256:first", {})
    served = DeploymentStatus(
        name=deployment_name(control.run), version=1, digest="sha256:next", state="serving", follow=True
    )
    WeightStore(weights_folder(control.run)).publish(1, {"weight": torch.zeros(2)})
    sink.engines.saw(served)
    assert not control.run.events.filter(level="error").exists()
    sink.engines.saw(served.model_copy(update={"version": 2}))
    assert "a version that was never published" in control.run.events.get(level="error").message


def test_an_engine_that_computes_something_else_is_an_event_of_the_run(control: RunControl) -> None:
    """As the router tells of it: once an engine and cause, with what becomes of the run."""
    sink = DatabaseSink(control)
    right = {"url": "http://a", "cluster": "near", "version": 4, "proof": "proven"}
    wrong = {"url": "http://b", "cluster": "far", "version": -1, "proof": "differs", "error": "http://b: 2.4 nats off"}

    def served(*engines: dict[str, object]) -> DeploymentStatus:
        found = {"name": deployment_name(control.run), "version": 4, "digest": "", "state": "serving", "follow": True}
        return DeploymentStatus.model_validate(found | {"engines": engines})

    for _ in range(2):
        sink.engines.saw(served(right, wrong))
    events = control.run.events.filter(level="error")
    assert [event.message for event in events] == [
        "an engine is left out: http://b: 2.4 nats off; 1 of 2 engines go on"
    ]
    assert events[0].kind == "alert" and events[0].data == {"engine": "http://b"}
    near, far = clusters(served(right, wrong), 4)[::-1]
    assert (near.name, near.version, near.behind) == ("near", 4, 0) and (far.name, far.engines) == ("far", 0)
