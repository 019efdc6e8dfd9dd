"""Stores the finished attempts of a group: audit, training data, and acceptance in one transaction."""

from __future__ import annotations

from composer_web.core import leases
from composer_web.core.artifacts import MAX_GROUP_BYTES, artifacts
from composer_web.core.database import survives_restart
from composer_web.rollouts import services
from composer_web.rollouts.models import Group
from composer_web.rollouts.recorder import Recorder
from sandbox.tasks.spec import TaskSpec
from trainer.config import RLConfig
from trainer.rollouts.audit import audit_group, observed, quarantined, without
from trainer.rollouts.group import GroupResult
from trainer.types import TrainGroup


def graded_of(result: GroupResult, recorder: Recorder) -> list[services.Graded]:
    """Each trajectory with its blob key."""
    return [services.Graded(trajectory, recorder.key_of(trajectory)) for trajectory in result.trajectories]


def accept_result(
    *, group: Group, held: leases.Held, task: TaskSpec, config: RLConfig, result: GroupResult, recorder: Recorder
) -> bool:
    """Accept a group whose `result` has a `train_group`; False when it was ended meanwhile, and nothing is written.

    Blobs of earlier tries of the group are removed. Raises ArtifactError and LeaseLost.
    """
    assert result.train_group is not None, "a group without a training view is not accepted"
    audited, train_group = _audit(group, task, config, result)
    train_key = ""
    if group.run_id and train_group is not None:
        train_key = f"{recorder.prefix}/train.json.zst"
        artifacts().put_model(train_key, train_group, max_bytes=MAX_GROUP_BYTES)
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
