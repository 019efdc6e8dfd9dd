"""Running one group in this worker: claim, controls, deployment, episodes, accept. Idempotent by the claim."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from composer_web.env import env
from composer_web.evals.models import Evaluation
from composer_web.ops import disk, inference, leases
from composer_web.ops.artifacts import artifacts
from composer_web.ops.database import survives_restart
from composer_web.ops.errors import UserError
from composer_web.policies import endpoints
from composer_web.policies.selectors import cannot_play, resolve
from composer_web.policies.services import note_template_problem
from composer_web.rollouts import forks, reading, selectors, services, tracing
from composer_web.rollouts.loop import EpisodeLoop, episode_loop, renderer, template_problem
from composer_web.rollouts.models import Fork, Group
from composer_web.rollouts.onlooking import Onlookers
from composer_web.rollouts.partials import StoredPartials
from composer_web.runs import rewards
from composer_web.runs.models import RUN_FINAL
from composer_web.runs.services import pause_for
from composer_web.runs.whereabouts import served_weights, starting_folder, weights_folder
from composer_web.tasks.services import record_controls
from sandbox.tasks.spec import TaskSpec
from trainer.asynchrony.checks import check_group
from trainer.config import HarnessConfig, RewardConfig, RLConfig, SamplingConfig
from trainer.inference.chat import ChatClient, Endpoint
from trainer.inference.contract import DeploymentSpec, InferenceError, InferenceRefused
from trainer.replay.shape import shape_of
from trainer.rollouts.audit import audit_group, observed, quarantined, without
from trainer.rollouts.chat import ChatServices, run_chat_episode
from trainer.rollouts.episode import EpisodeSettings
from trainer.rollouts.fork import ForkImpossible
from trainer.rollouts.group import GroupResult, run_attempts, run_group
from trainer.rollouts.interruption import Interruption
from trainer.rollouts.snapshots import Origin
from trainer.rollouts.types import TrainGroup, Trajectory
from trainer.weights.versions import open_versions

log = logging.getLogger(__name__)
T = TypeVar("T")

CONTROL_RUNS = 1
"""Oracle and no-op runs just before a bundle's first use; `tasks.run_controls` does three of each."""

SERVER_SECONDS = 90.0
"""How long a worker waits for an inference server that is being restarted."""

NO_SPACE_SECONDS = 15.0
"""How long a group that met a full disk waits before it is tried again."""

stopping = threading.Event()
"""Set when this worker process is asked to stop: its groups go back to the queue at once."""


class GroupFailed(Exception):
    """The infrastructure under a group failed; says nothing about the policy. Counted, shown, tried again."""


class GroupEnded(Exception):
    """Nobody wants the group any more (its run or evaluation ended), or this worker stops."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the episodes of a group need, read from the database once."""

    task: TaskSpec
    config: RLConfig
    seed: int
    deployment: DeploymentSpec | None
    """Weights to serve; None for a policy behind an endpoint."""
    endpoint: Endpoint | None = None
    interruption: Interruption | None = None
    fork: tuple[Fork, Trajectory] | None = None
    """What is continued, and its recorded parent."""


def execute(group_id: int) -> str:
    """Run a group to its end; returns what became of it, for the log."""
    owner = f"{leases.identity('rollout')}/{threading.get_ident() % 10_000}"
    claim = survives_restart(services.claim)(group_id=group_id, owner=owner, seconds=env().group_lease_seconds)
    if claim is None:
        return "nothing to do"
    group, held = claim.group, claim.held
    leases.keeper.keep(held)
    try:
        return _run_claimed(group, held)
    except leases.LeaseLost as error:
        return f"abandoned: {error}"
    except (GroupEnded, ForkImpossible) as error:
        if stopping.is_set():
            survives_restart(services.give_back)(group=group, held=held)
            return "given back: the worker stops"
        survives_restart(services.drop_claimed)(group=group, held=held, cause=str(error))
        return f"dropped: {error}"
    except Exception as error:
        if full := disk.why_full(error):
            return _wait_for_space(group, held, full)
        # Whatever went wrong here is not the policy's doing: an infra error with its cause, never a reward.
        expected = isinstance(error, GroupFailed | InferenceError)
        cause = str(error) if expected else in_words(error)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "group %d failed: %s",
            group_id,
            cause,
            exc_info=not expected,
        )
        try:
            again = survives_restart(services.fail)(group=group, held=held, cause=cause)
        except leases.LeaseLost:
            return f"abandoned after {cause}"
        return f"failed ({'will be tried again' if again else 'dropped'}): {cause}"
    finally:
        leases.keeper.drop(held)


def _wait_for_space(group: Group, held: leases.Held, cause: str) -> str:
    """A full disk is nobody's failure and passes: the group keeps its attempts and is tried again until there is room.
    Its run pauses, so that a person sees the cause and no further prompt is spent."""
    try:
        survives_restart(services.give_back)(group=group, held=held, cause=cause, delay=NO_SPACE_SECONDS)
    except leases.LeaseLost as error:
        return f"abandoned: {error}"
    if group.run is not None:
        survives_restart(pause_for)(run=group.run, cause=cause)
    return f"given back: {cause}"


def _run_claimed(group: Group, held: leases.Held) -> str:
    disk.require_space()
    plan = make_plan(group)
    _check_plays(group, plan)
    if group.task_version.controls_ok is None:
        _prove_task(group, plan, held)
    if plan.deployment is not None:
        ensure_deployment(plan.deployment)
    began = timezone.now()
    result = _wait(_episodes(group, plan), group=group, held=held, seconds=plan.config.group_deadline)
    ready = timezone.now()
    if group.fork and (forked := result.trajectories[0].forked):
        survives_restart(forks.note_start)(fork=group.fork, replayed=forked.replayed)
    prefix = f"groups/{group.pk}/{held.token}"
    graded = []
    for trajectory in result.trajectories:
        key = f"{prefix}/{trajectory.sample}.json.zst"
        reading.record(key, trajectory)
        graded.append(services.Graded(trajectory, key))
    if result.train_group is None:
        cause = result.infra_errors[-1] if result.infra_errors else "a rollout has no verdict"
        if disk.mentions(cause):
            raise disk.DiskFull(cause)
        again = survives_restart(services.fail)(
            group=group, held=held, cause=cause, graded=graded, infra_errors=result.infra_errors
        )
        tracing.trace(group, result.trajectories, began=began, graded=ready, now=timezone.now())
        return f"failed ({'will be tried again' if again else 'dropped'}): {cause}"
    if group.run is not None:
        _check(result.train_group, plan)
    audited, train_group = _audit(group, plan, result)
    train_key = ""
    if group.run_id and train_group is not None:
        train_key = f"{prefix}/train.json.zst"
        artifacts().put_model(train_key, train_group)
    done = survives_restart(services.accept)(
        group=group,
        held=held,
        graded=graded,
        train_key=train_key,
        oldest_version=result.train_group.oldest_version,
        infra_errors=result.infra_errors,
        audit=audited,
    )
    tracing.trace(group, result.trajectories, began=began, graded=ready, now=timezone.now())
    for token in artifacts().children(f"groups/{group.pk}"):
        if done and token != str(held.token):
            artifacts().remove_tree(f"groups/{group.pk}/{token}")
    return "accepted" if done else "was ended meanwhile"


def _check(train_group: TrainGroup, plan: Plan) -> None:
    """Raises EngineLied, GroupRefused. The store is the truth about versions: the engine has its weights from there."""
    assert plan.deployment is not None and plan.deployment.store is not None, "a run samples from its weight store"
    check_group(
        train_group,
        published=max(open_versions(plan.deployment.store).all(), default=-1),
        shape=shape_of(Path(plan.deployment.policy_dir)),
    )


def _audit(group: Group, plan: Plan, result: GroupResult) -> tuple[services.Audited | None, TrainGroup | None]:
    """Findings of the group's rollouts, and the group as it is to be trained on: without what the policy leaves out."""
    trajectories, whole = result.trajectories, result.train_group
    assert whole is not None
    monitors = plan.config.monitors
    if not monitors.audit:
        return None, whole
    audited = audit_group(trajectories, plan.task)
    out = quarantined(audited, monitors) if group.run_id else frozenset()
    without_reward = {index for index, t in enumerate(trajectories) if t.reward is None}  # cut stragglers
    whole = whole.model_copy(update={"stats": {**whole.stats, **observed(audited)}})
    rest = without(whole, trajectories, out | without_reward, plan.config) if out else whole
    found = {trajectory.sample: f for trajectory, f in zip(trajectories, audited.findings, strict=True)}
    return services.Audited(found, frozenset(trajectories[index].sample for index in out)), rest


def in_words(error: BaseException) -> str:
    """The first real error inside nested exception groups, with its type."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def make_plan(group: Group) -> Plan:
    """What to run for a group of a run, of an evaluation or of a fork."""
    run, evaluation = group.run, group.evaluation
    task = group.task_version.bundle
    if group.fork is not None:
        config = forks.config(group.fork, size=group.size)
        parent = selectors.trajectory(group.fork.parent)
        return Plan(task, config, group.fork.seed, forks.weights(group.fork), fork=(group.fork, parent))
    if run is not None:
        stage = run.configuration.stage
        assert isinstance(stage, RLConfig)
        stage = stage.model_copy(update={"reward": rewards.in_force(run)})
        return Plan(task, stage, run.seed, served_weights(run))
    assert evaluation is not None
    conditions = evaluation.conditions
    config = RLConfig().model_copy(
        update={
            "group_size": evaluation.samples,
            "sampling": SamplingConfig.model_validate(conditions["sampling"]),
            "harness": HarnessConfig.model_validate(conditions["harness"]),
            "reward": RewardConfig.model_validate(conditions["reward"]),
        }
    )
    interrupted = Interruption.model_validate(evaluation.interruption) if evaluation.interruption else None
    if evaluation.policy.is_endpoint:
        try:
            endpoint = endpoints.asked(evaluation.policy.endpoint, effort=evaluation.effort)
        except UserError as error:
            raise GroupFailed(f"the endpoint {evaluation.policy.name} cannot be asked: {error}") from error
        return Plan(task, config, evaluation.seed, None, endpoint, interrupted)
    if evaluation.run is not None:
        spec = DeploymentSpec(
            name=f"eval-{evaluation.pk}",
            policy_dir=str(starting_folder(evaluation.run)),
            store=weights_folder(evaluation.run),
            version=evaluation.version,
        )
    else:
        weights = resolve(f"{evaluation.policy.name}@{evaluation.version}")
        spec = DeploymentSpec(name=f"eval-{evaluation.pk}", policy_dir=str(weights.path))
    return Plan(task, config, evaluation.seed, spec, interruption=interrupted)


def _check_plays(group: Group, plan: Plan) -> None:
    """The template must be able to drive episodes. It was judged at the import, unless that was before templates were, or
    the folder has changed since. Raises GroupEnded, GroupFailed."""
    if plan.deployment is None or not (problem := template_problem(Path(plan.deployment.policy_dir))):
        return
    if group.run is not None:  # its trainer judges the template as well, and says what becomes of the run
        raise GroupFailed(cannot_play(group.run.configuration.policy, problem))
    owner = group.evaluation or group.fork
    assert owner is not None, "a group has one owner"
    policy = owner.policy if isinstance(owner, Evaluation) else forks.who(owner)
    survives_restart(note_template_problem)(policy=policy, problem=problem)
    raise GroupEnded(cannot_play(policy.name, problem))


_deployed: dict[str, float] = {}


def ensure_deployment(spec: DeploymentSpec) -> None:
    """The server serves `spec` (asked again every few seconds: a restarted server may have lost it). Raises GroupFailed."""
    if time.monotonic() - _deployed.get(spec.name, -1e9) < 5.0:
        return
    end = time.monotonic() + SERVER_SECONDS
    while True:
        try:
            inference.deploy(spec)
        except InferenceRefused as error:
            raise GroupFailed(f"the inference engine refuses {spec.name}: {error}") from error
        except InferenceError as error:
            if time.monotonic() > end or stopping.wait(1.0):
                raise GroupFailed(f"deployment {spec.name} is not available: {error}") from error
        else:
            _deployed[spec.name] = time.monotonic()
            return


async def _episodes(group: Group, plan: Plan) -> GroupResult:
    loop = episode_loop()
    if plan.endpoint is not None:
        return await _ask_endpoint(group, plan, plan.endpoint, loop)
    if plan.fork is None:
        return await _run_group(group, plan, loop, None)
    prepared = await forks.start(*plan.fork, task=plan.task, config=plan.config, loop=loop)
    with prepared.lease:
        return await _run_group(group, plan, loop, prepared.origin)


async def _ask_endpoint(group: Group, plan: Plan, endpoint: Endpoint, loop: EpisodeLoop) -> GroupResult:
    config = plan.config
    settings = EpisodeSettings(config.sampling, config.harness, config.reward, plan.interruption)
    async with ChatClient(endpoint) as client:
        on = ChatServices(client, loop.backend, loop.environments, loop.slots)

        async def episode(sample: int, _session: str, _seed: int) -> Trajectory:
            return await run_chat_episode(task=plan.task, sample=sample, settings=settings, services=on)

        return await run_attempts(
            episode,
            group_id=f"{group.pk}-{group.attempts}",
            prompt_index=group.prompt_index,
            config=config,
            seed=plan.seed,
            dispatched_version=group.dispatched_version,
        )


async def _run_group(group: Group, plan: Plan, loop: EpisodeLoop, origin: Origin | None) -> GroupResult:
    assert plan.deployment is not None, "an endpoint has episodes of its own"
    return await run_group(
        task=plan.task,
        group_id=f"{group.pk}-{group.attempts}",
        prompt_index=group.prompt_index,
        config=plan.config,
        client=await loop.client(),
        renderer=renderer(Path(plan.deployment.policy_dir)),
        backend=loop.backend,
        environments=loop.environments,
        deployment=plan.deployment.name,
        seed=plan.seed,
        dispatched_version=group.dispatched_version,
        slots=loop.slots,
        snapshots=loop.snapshots,
        origin=origin,
        interruption=plan.interruption,
        partials=StoredPartials(group.pk) if group.run_id else None,
        watch=Onlookers(group.pk),
    )


def _prove_task(group: Group, plan: Plan, held: leases.Held) -> None:
    """Controls of a bundle that has none yet. Raises GroupEnded when it fails them."""
    from sandbox.grading.controls import run_controls

    loop = episode_loop()
    work = run_controls(backend=loop.backend, environments=loop.environments, task=plan.task, k=CONTROL_RUNS)
    controls = _wait(work, group=group, held=held, seconds=600.0)
    if not controls.graded:
        raise GroupFailed(f"the controls of the task could not be graded: {controls.reason}")
    survives_restart(record_controls)(
        version=group.task_version, controls=controls.model_dump(mode="json"), ok=controls.ok
    )
    if not controls.ok:
        raise GroupEnded(f"the task fails its controls and was rejected: {controls.reason}")


def _wait(work: Coroutine[Any, Any, T], *, group: Group, held: leases.Held, seconds: float) -> T:
    """The outcome of `work` on the episode loop. Cancels it and raises LeaseLost, GroupEnded or GroupFailed when the
    lease is lost, nobody wants the group any more, or `seconds` have passed."""
    future = episode_loop().submit(work)
    end = time.monotonic() + seconds
    try:
        while True:
            done, _ = concurrent.futures.wait([future], timeout=1.0)
            if done:
                return future.result()
            if held.lost.is_set():
                raise leases.LeaseLost(f"{held.resource} is run by another worker")
            if stopping.is_set():
                raise GroupEnded("the worker stops")
            if time.monotonic() > end:
                raise GroupFailed(f"the group did not end within {seconds:.0f} s")
            if _unwanted(group):
                raise GroupEnded("cancelled: its run or evaluation has ended")
    finally:
        if not future.done():
            future.cancel()


def _unwanted(group: Group) -> bool:
    try:
        row = Group.objects.filter(pk=group.pk).values("state", "run__state", "evaluation__state").get()
    except (OperationalError, InterfaceError) as error:
        log.warning("cannot ask whether group %d is still wanted: %s", group.pk, str(error).strip())
        return False
    if row["state"] != "running":
        return True
    if group.fork_id:
        return False
    return row["run__state"] in RUN_FINAL if group.run_id else row["evaluation__state"] != "running"
