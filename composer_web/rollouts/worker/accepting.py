"""Stores the finished attempts of a group: audit, training data, and acceptance in one transaction."""

from __future__ import annotations

import logging
import time

from composer_web.core.artifacts import MAX_GROUP_BYTES, ArtifactError, ArtifactTooLarge, artifacts
from composer_web.core.database import survives_restart
from composer_web.core.queue import leases
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group
from composer_web.rollouts.worker.recorder import Recorder
from sandbox.grading.verdict.outcomes import Cause, Loss
from sandbox.tasks.spec import TaskSpec
from trainer.config import RLConfig
from trainer.rollouts.audit import audit_group, observed, quarantined, without
from trainer.rollouts.ending import STORE_PAUSES
from trainer.rollouts.group import GroupResult
from trainer.types import TrainGroup

log = logging.getLogger(__name__)


def graded_of(result: GroupResult, recorder: Recorder) -> list[services.Graded]:
    """Each trajectory with its blob key."""
    return [services.Graded(trajectory, recorder.key_of(trajectory)) for trajectory in result.trajectories]


def accept_result(
    *, group: Group, held: leases.Held, task: TaskSpec, config: RLConfig, result: GroupResult, recorder: Recorder
) -> bool:
    """Accept a group whose `result` has a `train_group`; False when it was ended meanwhile, and nothing is written.

    Blobs of earlier tries of the group are removed. A group that is too large to store keeps its verdicts and is dropped
    (False). Raises ArtifactError and LeaseLost.
    """
    assert result.train_group is not None, "a group without a training view is not accepted"
    audited, train_group = _audit(group, task, config, result)
    train_key = ""
    if group.run_id and train_group is not None:
        train_key = f"{recorder.prefix}/train.json.zst"
        try:
            _put(train_key, train_group)
        except ArtifactTooLarge as error:
            survives_restart(services.fail)(
                group=group,
                held=held,
                loss=Loss(Cause.TOO_LARGE, str(error)),
                graded=graded_of(result, recorder),
                infra_errors=result.infra_errors,
            )
            return False
    done = survives_restart(services.accept)(
        group=group,
        held=held,
        graded=graded_of(result, recorder),
        train_key=train_key,
        oldest_version=result.train_group.oldest_version,
        infra_errors=result.infra_errors,
        audit=audited,
    )
    for token in artifacts().children(f"groups/{group.pk}"):
        if done and token != str(held.token):
            artifacts().remove_tree(f"groups/{group.pk}/{token}")
    return done


def _put(key: str, group: TrainGroup) -> None:
    """Store the training data. Raises ArtifactTooLarge, and ArtifactError after several tries, as of a rollout."""
    for pause in STORE_PAUSES:
        try:
            artifacts().put_model(key, group, max_bytes=MAX_GROUP_BYTES)
            return
        except ArtifactTooLarge:
            raise
        except ArtifactError as error:
            log.warning("%s is not stored yet: %s", key, error)
        time.sleep(pause)
    artifacts().put_model(key, group, max_bytes=MAX_GROUP_BYTES)


def _audit(
    group: Group, task: TaskSpec, config: RLConfig, result: GroupResult
) -> tuple[services.Audited | None, TrainGroup | None]:
    """Findings of the group's rollouts, and the training group without the rollouts that the policy excludes."""
    trajectories, whole = result.trajectories, result.train_group
    assert whole is not None
    monitors = config.monitors
    if not monitors.audit:
        return None, whole
    audited = audit_group(trajectories, task)
    out = quarantined(audited, trajectories, monitors) if group.run_id else frozenset()
    without_reward = {index for index, t in enumerate(trajectories) if t.reward is None}  # cut stragglers
    whole = whole.model_copy(update={"stats": {**whole.stats, **observed(audited)}})
    rest = without(whole, trajectories, out | without_reward, config) if out else whole
    found = {trajectory.sample: f for trajectory, f in zip(trajectories, audited.findings, strict=True)}
    return services.Audited(found, frozenset(trajectories[index].sample for index in out)), rest
