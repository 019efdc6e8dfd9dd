"""Celery tasks of rollouts: thin, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from composer_web.ops import inference
from composer_web.ops.artifacts import ArtifactError
from composer_web.rollouts import auditing, exports, forks, judging, scheduling, selectors, services
from composer_web.rollouts.models import Group
from composer_web.rollouts.quarantine import monitors_of
from composer_web.runs.models import RUN_FINAL, Run
from composer_web.runs.whereabouts import deployment_name
from sandbox.grading.audit.judge import JudgeError
from trainer.inference.contract import InferenceError

log = logging.getLogger(__name__)


@shared_task(name="rollouts.run_group")
def run_group(*, group_id: int, **_: Any) -> None:
    """One group, all its episodes. A second delivery of an accepted group does nothing."""
    from composer_web.rollouts.execution import execute

    log.info("group %d: %s", group_id, execute(group_id))


@shared_task(name="rollouts.drop_open")
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
    """Best effort: a deployment that stays only holds memory until the server is restarted."""
    try:
        with inference.admin(timeout=10.0) as admin:
            if any(d.name == name for d in admin.deployments()):
                admin.remove(name)
    except InferenceError as error:
        log.info("deployment %s was not removed: %s", name, error)


@shared_task(name="rollouts.end_fork")
def end_fork(*, fork_id: int, **_: Any) -> None:
    """Clean up after an ended fork: the deployment that was made for it alone."""
    remove_deployment(forks.deployment_name(fork_id))


@shared_task(name="rollouts.collect_snapshots")
def collect_snapshots(**_: Any) -> None:
    """Remove the snapshots that no rollout of a kept run names, and exports that have expired."""
    log.info("snapshots: %s", forks.collect())
    log.info("exports that expired: %d", exports.expire())


@shared_task(name="rollouts.export")
def export(*, export_id: int, **_: Any) -> None:
    """Write the file of an export. Idempotent."""
    log.info("export %d: %s", export_id, exports.write(export_id))


@shared_task(name="rollouts.audit_run")
def audit_run(*, run_id: int, everything: bool = False, **_: Any) -> None:
    """Audit a run again; idempotent."""
    log.info("run %d: %s", run_id, auditing.audit_run(run=Run.objects.get(pk=run_id), everything=everything))


@shared_task(name="rollouts.judge")
def judge(*, group_id: int, **_: Any) -> None:
    """Have the language model read the chosen rollouts of a group. Idempotent; what it cannot say is only logged."""
    judge_ = judging.configured()
    group = Group.objects.select_related("run").get(pk=group_id)
    share = monitors_of(group.run).judge_share
    if judge_ is None:
        return
    for rollout in selectors.of_group(group).exclude(artifact_key=""):
        if judging.chosen(rollout.pk, share):
            try:
                judging.judge_rollout(rollout=rollout, judge=judge_)
            except (JudgeError, ArtifactError) as error:
                log.warning("rollout %d was not judged: %s", rollout.pk, error)


@shared_task(name="runs.pump")
def pump(*, run_id: int, **_: Any) -> None:
    services.pump(run_id=run_id)


@shared_task(name="runs.pump_all")
def pump_all(**_: Any) -> None:
    """Follows the engine's load, and makes up for every pump that was lost."""
    runs = list(Run.objects.filter(state="running", kind="rl"))
    health = scheduling.engine_health() if runs else None
    for run in runs:
        if health is not None:
            scheduling.adapt(run, health)
        services.pump(run_id=run.pk)
