"""Celery tasks of rollouts: short, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from composer_web.core import inference
from composer_web.core.artifacts import ArtifactError
from composer_web.core.queue import leases
from composer_web.core.queue.work import task
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import batches, findings, scheduling, services
from composer_web.rollouts.dispatch.quarantine import monitors_of
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.worker import forks, llm_judge
from composer_web.runs import logs
from composer_web.runs.models import RUN_FINAL, Run
from composer_web.runs.paths import deployment_name
from sandbox.grading.audit.judge import JudgeError
from trainer.inference.contract import InferenceError

log = logging.getLogger(__name__)


@task("rollouts.run_group", queue=("rollout", "eval"), lease="group:{group_id}", inside=True)
def run_group(*, group_id: int, **_: Any) -> None:
    """Run all episodes of one group. A second delivery of an accepted group does nothing."""
    from composer_web.rollouts.worker.execution import execute

    execute(group_id)


@task("rollouts.drop_open", queue="maintenance", seconds=600)
def drop_open(*, run_id: int | None = None, evaluation_id: int | None = None, **_: Any) -> None:
    """Clean up after an ended run or evaluation: its open groups and its deployment."""
    name = f"eval-{evaluation_id}"
    if run_id is not None:
        run = Run.objects.get(pk=run_id)
        if run.state not in RUN_FINAL:  # it failed and was resumed since
            return
        name = deployment_name(run)
    services.drop_open(run_id=run_id, evaluation_id=evaluation_id)
    remove_deployment(name)


def remove_deployment(name: str) -> None:
    """Best effort: a leftover deployment only occupies memory until the server restarts."""
    try:
        with inference.admin(timeout=10.0) as admin:
            if any(d.name == name for d in admin.deployments()):
                admin.remove(name)
    except InferenceError as error:
        log.info("deployment %s was not removed: %s", name, error)


@task("rollouts.end_fork", queue="maintenance", seconds=60)
def end_fork(*, fork_id: int, **_: Any) -> None:
    """Clean up after an ended fork: remove its own deployment."""
    remove_deployment(forks.deployment_name(fork_id))


@task("rollouts.collect_snapshots", queue="maintenance", lease="snapshots", long=True)
def collect_snapshots(**_: Any) -> None:
    """Delete snapshots that no rollout of a retained run references, and expired exports."""
    log.info("snapshots: %s", forks.collect())
    log.info("exports that expired: %d", exports.expire())


@task("rollouts.export", queue="io", lease="export:{id}", inside=True, long=True)
def export(**_: Any) -> None:
    """Write the next export in line. Idempotent."""
    log.info("export: %s", exports.write_next())


@task("rollouts.audit_run", queue="maintenance", lease="audit:{run_id}", long=True)
def audit_run(*, run_id: int, everything: bool = False, **_: Any) -> None:
    """Audit a run again. Idempotent."""
    with logs.lines_of(run_id):
        log.info("run %d: %s", run_id, findings.audit_run(run=Run.objects.get(pk=run_id), everything=everything))


@task("rollouts.judge", queue="io", lease="judge:{group_id}", long=True)
def judge(*, group_id: int, **_: Any) -> None:
    """Have the LLM judge read the chosen rollouts of a group. Idempotent. Failures are only logged."""
    group = Group.objects.select_related("run").get(pk=group_id)
    share = monitors_of(group.run).judge_share
    with logs.lines_of(group.run_id):
        _judge(rollout for rollout in selectors.of_group(group) if llm_judge.chosen(rollout.pk, share))


@task("rollouts.judge_run", queue="io", lease="judge-run:{run_id}", long=True)
def judge_run(*, run_id: int, **_: Any) -> None:
    """Have the LLM judge read every rollout of a run that it has not read. Idempotent. Failures are only logged."""
    with logs.lines_of(run_id):
        for group in selectors.with_trajectories(Run.objects.get(pk=run_id)):
            leases.check()
            _judge(selectors.of_group(group))


def _judge(rollouts: Iterable[Rollout]) -> None:
    judge_ = llm_judge.configured()
    if judge_ is None:
        return
    for rollout in rollouts:
        if rollout.artifact_key and rollout.deletion_id is None:
            try:
                llm_judge.judge_rollout(rollout=rollout, judge=judge_)
            except (JudgeError, ArtifactError) as error:
                log.warning("rollout %d was not judged: %s", rollout.pk, error)


@task("runs.pump", queue="control", seconds=300)
def pump(*, run_id: int, **_: Any) -> None:
    with logs.lines_of(run_id):
        services.pump(run_id=run_id)


@task("runs.pump_all", queue="control", seconds=300)
def pump_all(**_: Any) -> None:
    """Adapt to the engine's load, and make up for lost pumps."""
    runs = list(Run.objects.filter(state="running", kind="rl"))
    health = scheduling.engine_health() if runs else None
    for run in runs:
        with logs.lines_of(run.pk):
            if health is not None:
                scheduling.adapt(run, health)
            services.pump(run_id=run.pk)
            try:
                batches.assign(run_id=run.pk)
            except ArtifactError as error:  # the other runs go on; the next pump tries this one again
                log.error("run %d: no batch was recorded: %s", run.pk, error)
