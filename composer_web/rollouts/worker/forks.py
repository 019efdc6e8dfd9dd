"""Forks: continuations of a recorded rollout from one of its turns, and the snapshots that make them cheap."""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path

from django.db import transaction
from django.db.models import Min, Q, QuerySet
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.env import env
from composer_web.policies.models import Policy
from composer_web.policies.selectors import Weights, check_plays, resolve
from composer_web.policies.services import real_path
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch.pump import dispatch_fork, drop
from composer_web.rollouts.models import GROUP_OPEN, Fork, Group, Rollout
from composer_web.rollouts.trajectory import trajectory_store
from composer_web.rollouts.worker.loop import EpisodeLoop, snapshots_folder
from composer_web.runs.models import RUN_FINAL, Run
from composer_web.runs.paths import served_weights
from sandbox.backends.snapshots import Collected, SnapshotStore
from sandbox.backends.snapshots.store import MIN_AGE_SECONDS
from sandbox.grading.verdict.outcomes import Cause, Loss
from sandbox.harness.profile import get_profile
from sandbox.tasks.spec import TaskSpec
from trainer.config import HarnessConfig, RewardConfig, RLConfig, SamplingConfig
from trainer.inference.contract import DeploymentSpec
from trainer.rollouts import fork as forking
from trainer.types import Trajectory

MAX = 64
MARGIN_SECONDS = 60.0


def request_fork(*, rollout: Rollout, turn: int, count: int, reference: str = "", actor: User | None = None) -> Fork:
    """`count` continuations of a recorded rollout after its first `turn` turns; a worker runs them.

    `reference` names the policy that continues; without it, the newest version of the rollout's run does. Raises
    UserError, NotFound (no trajectory is recorded), ArtifactError.
    """
    if not 1 <= count <= MAX:
        raise UserError("count", f"1 to {MAX} samples, not {count}")
    if not rollout.artifact_key:
        raise NotFound("recorded trajectory of rollout", f"{rollout.pk} (it is {rollout.state})")
    selectors.require_kept(rollout)
    head = trajectory_store.of(rollout).head
    after = head.facts[turn].segment if 0 <= turn < len(head.facts) else 0
    try:
        forking.check(len(head.facts), len(head.segment_tokens), turn, segment=after)
    except forking.ForkImpossible as error:
        raise UserError("turn", f"rollout {rollout.pk}: {error}") from error
    parent = rollout.group
    fork = Fork(
        parent=rollout,
        turn=turn,
        run=_run_of(parent),
        policy=selectors.policy_of(parent),
        reference=_pinned(reference, selectors.policy_of(parent)) if reference else "",
        conditions=conditions_of(parent),
        seed=secrets.randbits(31),
        created_by=actor,
    )
    weights(fork)  # refuses what cannot be served
    version = fork.run.policy_version if fork.run and not reference else -1
    with transaction.atomic():
        fork.save()
        dispatch_fork(fork=fork, size=count, version=version)
        audit(
            actor=actor, action="fork.create", target=f"rollout:{rollout.pk}", turn=turn, count=count, policy=reference
        )
    return fork


@transaction.atomic
def cancel(*, fork: Fork, actor: User | None = None) -> None:
    """Cancel a fork whose rollouts have no verdicts yet. Raises Conflict."""
    group = Group.objects.select_for_update(of=("self",)).get(fork=fork)
    if group.state not in GROUP_OPEN:
        raise Conflict(f"fork {fork.pk} has ended: its group is {group.state}", "state")
    drop(group=group, loss=Loss(Cause.CANCELLED, "cancelled"), actor=actor.get_username() if actor else "system")
    audit(actor=actor, action="fork.cancel", target=f"fork:{fork.pk}")


def config(fork: Fork, *, size: int) -> RLConfig:
    """Configuration of the continuations: the parent's conditions."""
    return RLConfig().model_copy(
        update={
            "group_size": size,
            "sampling": SamplingConfig.model_validate(fork.conditions["sampling"]),
            "harness": HarnessConfig.model_validate(fork.conditions["harness"]),
            "reward": RewardConfig.model_validate(fork.conditions["reward"]),
        }
    )


def deployment_name(fork_id: int) -> str:
    """Inference deployment of a fork that does not use its run's."""
    return f"fork-{fork_id}"


def weights(fork: Fork) -> DeploymentSpec:
    """Weights of the continuations: the named policy, else the run's served version, else its newest weights. Raises
    UserError."""
    if not fork.reference and fork.run is not None and fork.run.state not in RUN_FINAL and fork.run.policy_version >= 0:
        return served_weights(fork.run)
    path = _named(fork).path
    return DeploymentSpec(name=deployment_name(fork.pk or 0), policy_dir=str(path))


async def start(
    fork: Fork, parent: Trajectory, *, task: TaskSpec, config: RLConfig, loop: EpisodeLoop
) -> forking.Prepared:
    """Initial sandbox and tokens of the continuations. Raises the errors of `trainer.rollouts.fork.prepare`."""
    return await forking.prepare(
        parent,
        name=str(fork.parent_id),
        turns=fork.turn,
        task=task,
        profile=get_profile(config.harness.profile),
        backend=loop.backend,
        environments=loop.environments,
        store=loop.snapshots,
    )


def note_start(*, fork: Fork, replayed: int) -> None:
    """Record how the continuations obtained their sandbox."""
    Fork.objects.filter(pk=fork.pk).update(replayed=replayed)


def collect() -> Collected:
    """Delete snapshots that no rollout of a retained run references. A run is retained while it is active and for a
    few days after. Snapshots younger than the oldest group in progress are kept, because its rollouts are not
    recorded yet.
    """
    began = Group.objects.filter(state="running").aggregate(first=Min("dispatched_at"))["first"]
    age = (timezone.now() - began).total_seconds() + MARGIN_SECONDS if began else 0.0
    named = _kept().exclude(snapshots=[]).order_by().values_list("snapshots", flat=True)
    keep = {digest for digests in named.iterator() for digest in digests}
    return SnapshotStore(snapshots_folder()).collect(keep, min_age_seconds=max(MIN_AGE_SECONDS, age))


def _kept() -> QuerySet[Rollout]:
    days = env().snapshot_days
    rows = Rollout.objects.all()
    if not days:
        return rows
    goes_on = Run.objects.exclude(state__in=RUN_FINAL)
    return rows.filter(
        Q(finished_at__gte=timezone.now() - timedelta(days=days))
        | Q(group__run__in=goes_on)
        | Q(group__evaluation__run__in=goes_on)
        | Q(group__fork__run__in=goes_on)
    )


def _run_of(group: Group) -> Run | None:
    if group.run is not None:
        return group.run
    if group.evaluation is not None:
        return group.evaluation.run
    return group.fork.run if group.fork else None


def who(fork: Fork) -> Policy:
    """Policy whose weights continue. Raises UserError."""
    return _named(fork).policy


def _named(fork: Fork) -> Weights:
    """Raises UserError if the weights do not exist or cannot play."""
    newest = fork.run.policy_out if fork.run and fork.run.policy_out else fork.policy
    found = resolve(fork.reference or newest.name)
    check_plays(found.policy)
    return found


def conditions_of(group: Group) -> dict[str, object]:
    """Sampling, harness and reward of the group's rollouts."""
    if group.run is not None:
        stage = group.run.configuration.stage
        assert isinstance(stage, RLConfig), "only such runs have groups"
        return {name: getattr(stage, name).model_dump() for name in ("sampling", "harness", "reward")}
    owner = group.evaluation or group.fork
    assert owner is not None, "a group has one owner"
    return dict(owner.conditions)


def _pinned(reference: str, parent: Policy) -> str:
    """`name@version` of weights whose tokenizer matches the parent's tokens. Raises UserError."""
    found = resolve(reference)
    theirs, ours = (folder / "tokenizer.json" for folder in (found.path, real_path(parent.base_dir)))
    if _content(theirs) != _content(ours):
        raise UserError(
            "policy",
            f"{reference!r} has another tokenizer than {parent.name!r}, whose tokens would be continued; name a policy "
            "of the same lineage",
        )
    return f"{found.policy.name}@{found.version}"


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
