"""Groups: admitted by the gate, claimed by one worker, accepted once, dropped and replaced."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from composer_web.core.models import Lease, Outbox
from composer_web.core.queue import leases
from composer_web.rollouts.dispatch import prompts, scheduling, services
from composer_web.rollouts.dispatch.prompts import fresh_prompts
from composer_web.rollouts.models import Group, Quarantine, Rollout
from composer_web.rollouts.selectors import verdict_counts
from composer_web.rollouts.worker import tasks
from composer_web.runs.models import Run, RunEvent
from composer_web.runs.services import (
    cancel_run,
    create_run,
    mark_failed,
    mark_paused,
    mark_running,
    record_version,
    resume_run,
    start_run,
)
from composer_web.tasks.models import TaskVersion
from composer_web.tasks.selectors import prompt_order
from sandbox.grading.verdict.outcomes import Cause, Loss
from tests.web.making import SMALL, claim, finish, trajectory
from trainer.config import OrchestratorConfig, RLConfig, RunConfig
from trainer.inference.contract import ServerHealth

pytestmark = pytest.mark.django_db
DOWN = Loss(Cause.ENGINE_FAILED, "inference is down")


def groups(run: Run) -> list[Group]:
    return list(Group.objects.filter(run=run).order_by("prompt_index"))


def test_the_gate_bounds_what_is_out(running: Run) -> None:
    # (version 0 + staleness 1 + 1) x 2 groups a step = 4, which is the whole run of 2 steps, too.
    assert services.pump(run_id=running.pk) == 4
    assert services.pump(run_id=running.pk) == 0
    assert [g.prompt_index for g in groups(running)] == [0, 1, 2, 3]
    assert [g.task_version_id for g in groups(running)] == prompt_order("train", seed=running.seed)[:4]
    assert Outbox.objects.filter(task="rollouts.run_group").count() == 4
    assert verdict_counts(run=running) == {"dispatched": 8, "passed": 0, "failed": 0, "infra_error": 0, "open": 8}


def use(run: Run, keys: list[int]) -> None:
    start = Group.objects.filter(run=run).count()
    Group.objects.bulk_create(
        Group(run=run, task_version_id=key, prompt_index=start + n, size=2, dispatched_version=0, state="dispatched")
        for n, key in enumerate(keys)
    )


def test_prompts_that_were_used_long_ago_are_not_read_again(
    running: Run, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    """Under the lock of the run, with each group that ends."""
    monkeypatch.setattr(prompts, "CHUNK", 2)
    stage = running.configuration.stage
    assert isinstance(stage, RLConfig)
    order, asked = prompt_order("train", seed=running.seed), list[int]()
    for n in range(5):
        with django_capture_on_commit_callbacks(execute=True), CaptureQueriesContext(connection) as queries:
            found = fresh_prompts(running, stage, 2)
        assert found == order[2 * n : 2 * n + 2]
        use(running, found)
        asked.append(len(queries))
    assert asked[-1] == asked[1], asked
    TaskVersion.objects.filter(pk=order[-1]).update(controls_ok=False)
    assert fresh_prompts(running, stage, 9) == [order[10]], "another order, and none twice"


def test_a_prompt_whose_quarantine_is_lifted_is_used(running: Run, django_capture_on_commit_callbacks: Any) -> None:
    stage = running.configuration.stage
    assert isinstance(stage, RLConfig)
    order = prompt_order("train", seed=running.seed)
    barred = Quarantine.objects.create(task_version_id=order[0])
    with django_capture_on_commit_callbacks(execute=True):
        use(running, fresh_prompts(running, stage, len(order)))
    assert fresh_prompts(running, stage, 1) == []
    Quarantine.objects.filter(pk=barred.pk).update(state="lifted")
    assert fresh_prompts(running, stage, 1) == [order[0]]


def test_nothing_is_dispatched_before_the_first_version_or_after_the_end(draft: Run) -> None:
    assert services.pump(run_id=draft.pk) == 0


def test_one_worker_claims_a_group(running: Run) -> None:
    services.pump(run_id=running.pk)
    group = groups(running)[0]
    claim(group, "a")
    assert services.claim(group_id=group.pk, owner="b", seconds=60) is None


def test_a_second_delivery_of_an_accepted_group_does_nothing(running: Run) -> None:
    services.pump(run_id=running.pk)
    claimed = claim(groups(running)[0])
    assert finish(claimed.group, claimed.held, [True, False])
    before = list(Rollout.objects.filter(group=claimed.group).order_by("sample").values())
    assert services.claim(group_id=claimed.group.pk, owner="b", seconds=60) is None
    assert list(Rollout.objects.filter(group=claimed.group).order_by("sample").values()) == before
    claimed.group.refresh_from_db()
    assert (claimed.group.state, claimed.group.mean_reward, claimed.group.best_reward) == ("accepted", 0.5, 1.0)
    assert [t.to_state for t in claimed.group.transitions.all()] == ["dispatched", "running", "accepted"]


def test_a_worker_that_lost_its_lease_cannot_write(running: Run) -> None:
    services.pump(run_id=running.pk)
    slow = claim(groups(running)[0], "slow")
    Lease.objects.update(expires_at="2020-01-01T00:00Z")
    assert services.recover(group_id=slow.group.pk, cause="lost") == "dispatched again"
    fast = claim(slow.group, "fast")
    with pytest.raises(leases.LeaseLost), transaction.atomic():
        finish(slow.group, slow.held, [True, True])
    assert finish(fast.group, fast.held, [False, False])
    assert verdict_counts(run=running)["passed"] == 0


def test_a_failing_group_is_retried_then_dropped_and_replaced(running: Run) -> None:
    services.pump(run_id=running.pk)
    group = groups(running)[0]
    for attempt in range(1, services.MAX_ATTEMPTS + 1):
        claimed = claim(group)
        graded = [
            services.Graded(trajectory(group, 0, passed=True), "groups/x/0"),
            services.Graded(trajectory(group, 1, passed=None), "groups/x/1"),
        ]
        again = services.fail(group=group, held=claimed.held, loss=DOWN, graded=graded, infra_errors=[DOWN])
        assert again == (attempt < services.MAX_ATTEMPTS)
    group.refresh_from_db()
    assert group.state == "dropped" and "inference is down" in group.cause and group.infra_errors == 3
    assert group.outcome == Cause.ENGINE_FAILED
    verdicts = Rollout.objects.filter(group=group).order_by("sample").values_list("verdict", "reward")
    assert list(verdicts) == [("passed", 1.0), ("infra_error", None)]
    assert RunEvent.objects.filter(run=running, kind="infra").count() == 3
    # Its place was given to the next prompt, and a dropped prompt never comes back.
    assert [g.prompt_index for g in groups(running)] == [0, 1, 2, 3, 4]
    assert len({g.task_version_id for g in groups(running)}) == 5


def test_count_in_is_count_out_when_a_run_is_cancelled(running: Run) -> None:
    services.pump(run_id=running.pk)
    first, second = groups(running)[:2]
    done = claim(first)
    finish(done.group, done.held, [True, False])
    claim(second)
    cancel_run(run=running)
    assert services.drop_open(run_id=running.pk) == 3
    assert verdict_counts(run=running) == {"dispatched": 8, "passed": 1, "failed": 1, "infra_error": 6, "open": 0}
    assert services.pump(run_id=running.pk) == 0


def test_a_failed_run_leaves_nothing_in_flight_and_no_weights_in_the_engine(
    running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    monkeypatch.setattr(tasks, "remove_deployment", removed.append)
    services.pump(run_id=running.pk)
    assert {group.state for group in groups(running)} == {"dispatched"}
    mark_failed(run=running, cause="the disk is gone")
    sent = Outbox.objects.get(task="rollouts.drop_open")
    resume_run(run=running)
    tasks.drop_open(**sent.kwargs)
    assert {group.state for group in groups(running)} == {"dispatched"} and not removed, "it goes on"
    mark_failed(run=running, cause="again")
    tasks.drop_open(**sent.kwargs)
    assert {group.state for group in groups(running)} == {"dropped"} and removed == [f"run-{running.pk}"]


def test_a_claim_for_an_ended_run_drops_the_group(running: Run) -> None:
    services.pump(run_id=running.pk)
    cancel_run(run=running)
    group = groups(running)[0]
    assert services.claim(group_id=group.pk, owner="a", seconds=60) is None
    group.refresh_from_db()
    assert group.state == "dropped"


def test_a_stopped_worker_gives_its_group_back_without_blame(running: Run) -> None:
    services.pump(run_id=running.pk)
    claimed = claim(groups(running)[0])
    services.give_back(group=claimed.group, held=claimed.held)
    claimed.group.refresh_from_db()
    assert (claimed.group.state, claimed.group.attempts, claimed.group.infra_errors) == ("dispatched", 0, 0)


def test_a_suite_without_prompts_left_fails_the_run_with_a_remedy(running: Run) -> None:
    services.pump(run_id=running.pk)
    record_version(run=running, version=1)
    for _ in range(12):
        for group in Group.objects.filter(run=running, state="dispatched"):
            services.drop(group=group, loss=Loss(Cause.TASK_INVALID, "the task fails validation"))
    running.refresh_from_db()
    assert running.state == "failed"
    assert "ran out of prompts" in running.failure and "larger suite" in running.failure


def test_over_sampling_dispatches_more_and_no_more_than_the_run_needs(policy: object, make_suite: object) -> None:
    make_suite()  # type: ignore[operator]
    stage = SMALL.model_copy(
        update={
            "steps": 3,
            "max_off_policy_steps": 0,
            "orchestrator": OrchestratorConfig(over_sampling=0.5),
            "max_in_flight_groups": 3,
        }
    )
    run = create_run(config=RunConfig(name="more", seed=3, stage=stage))
    start_run(run=run)
    mark_running(run=run, owner="trainer@test")
    record_version(run=run, version=0)
    # Two groups a step, and one of surplus; at the end of the run nothing is dispatched that no step will train.
    assert services.pump(run_id=run.pk) == 3
    record_version(run=run, version=1)
    for group in groups(run):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    assert len(groups(run)) == 5
    record_version(run=run, version=2)
    assert services.pump(run_id=run.pk) == 0, "a step and the surplus are finished, and would only grow older"
    ready = [group.pk for group in groups(run) if group.state == "accepted"]
    services.consume(run=run, group_ids=ready[:2], step=1)
    assert len(groups(run)) == 6


def test_the_engines_queue_lowers_what_may_be_in_flight(running: Run) -> None:
    def health(**load: int) -> ServerHealth:
        served = {"name": f"run-{running.pk}", "version": 0, "digest": "", "state": "serving", "follow": True, **load}
        return ServerHealth.model_validate({"ok": True, "engine": "embedded", "deployments": [served]})

    scheduling.adapt(running, health(running=8, waiting=20, slots=8))
    running.refresh_from_db()
    assert running.in_flight_limit == 3
    assert services.pump(run_id=running.pk) == 3
    scheduling.adapt(running, health(running=2, waiting=0, slots=8))
    running.refresh_from_db()
    assert running.in_flight_limit == 4
    assert services.pump(run_id=running.pk) == 1


def test_losses_in_a_row_pause_the_run_with_their_cause_and_a_resume_counts_anew(running: Run) -> None:
    services.pump(run_id=running.pk)
    for _ in range(5):
        group = Group.objects.filter(run=running, state="dispatched").earliest("prompt_index")
        services.drop(group=group, loss=Loss(Cause.REWARD_FAILED, "reward part 'x' failed on task t: KeyError()"))
    running.refresh_from_db()
    assert running.state == "pausing"
    assert "last 5 groups were all lost" in running.failure and "reward part 'x'" in running.failure
    assert services.pump(run_id=running.pk) == 0
    mark_paused(run=running)
    resume_run(run=running)
    mark_running(run=running, owner="trainer@test")
    running.refresh_from_db()
    assert scheduling.fault(running) is None
    # What a person or a task ended is no fault of the installation.
    assert services.pump(run_id=running.pk) > 0
    for group in Group.objects.filter(run=running, state="dispatched")[:3]:
        services.drop(group=group, loss=Loss(Cause.TASK_INVALID, "the task fails validation"))
    assert scheduling.fault(running) is None


def test_a_launcher_that_dies_is_ours_whatever_its_message_says_and_pauses_the_run(running: Run) -> None:
    services.pump(run_id=running.pk)
    for _ in range(5):
        group = Group.objects.filter(run=running, state="dispatched").earliest("prompt_index")
        services.drop(group=group, loss=Loss(Cause.SANDBOX_LOST, "SandboxLost: the sandbox launcher ended twice"))
    running.refresh_from_db()
    assert running.state == "pausing" and "launcher ended twice" in running.failure
    lost = Rollout.objects.filter(group__run=running, state="lost")
    assert set(lost.values_list("outcome", "stop_reason")) == {("sandbox_lost", "infra_error")}
    assert scheduling.flow(running)["groups/dropped/sandbox_lost"] == 5.0


def test_what_a_task_is_called_or_an_error_says_counts_for_nothing(running: Run) -> None:
    services.pump(run_id=running.pk)
    group = groups(running)[0]
    said = "cancelled: the version has ended, its controls did not end within 5 s; No space left on device"
    services.drop(group=group, loss=Loss(Cause.HOST_FAILED, said))
    group.refresh_from_db()
    assert (group.outcome, group.cause) == ("host_failed", said)
    assert set(Rollout.objects.filter(group=group).values_list("stop_reason", flat=True)) == {"infra_error"}
    assert scheduling.flow(running)["groups/dropped/host_failed"] == 1.0
    ended = groups(running)[1]
    services.drop(group=ended, loss=Loss(Cause.CANCELLED, "nothing of the kind"))
    assert set(Rollout.objects.filter(group=ended).values_list("stop_reason", flat=True)) == {"cancelled"}
