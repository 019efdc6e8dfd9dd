"""Runs one group in this worker: claim, controls, deployment, episodes, acceptance. The claim makes it idempotent."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from composer_web.core import disk, inference
from composer_web.core.database import survives_restart
from composer_web.core.errors import UserError
from composer_web.core.queue import leases
from composer_web.env import env
from composer_web.evals.models import Evaluation
from composer_web.policies import endpoints
from composer_web.policies.selectors import cannot_play, resolve
from composer_web.policies.services import note_template_problem
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.dispatch.losses import GroupEnded, GroupFailed, loss_of
from composer_web.rollouts.models import Fork, Group
from composer_web.rollouts.worker import forks, tracing
from composer_web.rollouts.worker.accepting import accept_result, graded_of
from composer_web.rollouts.worker.live_turns import Onlookers
from composer_web.rollouts.worker.loop import EpisodeLoop, episode_loop, renderer, template_problem
from composer_web.rollouts.worker.recorder import Recorder
from composer_web.rollouts.worker.stored_checkpoints import StoredCheckpoints
from composer_web.runs import logs, rewards
from composer_web.runs.models import RUN_FINAL
from composer_web.runs.paths import served_weights, starting_folder, weights_folder
from composer_web.runs.services import pause_for
from composer_web.tasks.services import record_controls
from sandbox.backends.capacity import sandboxes_at_once
from sandbox.grading.verdict.outcomes import Cause
from sandbox.tasks.spec import TaskSpec
from trainer.config import HarnessConfig, RewardConfig, RLConfig, SamplingConfig
from trainer.inference.chat import ChatClient, Endpoint
from trainer.inference.contract import DeploymentSpec, InferenceError, InferenceRefused
from trainer.orchestrator.validation import check_group
from trainer.rollouts.chat import ChatServices, run_chat_episode
from trainer.rollouts.deadlines import grading_seconds, group_deadline
from trainer.rollouts.fork import ForkImpossible
from trainer.rollouts.group import GroupResult, run_attempts, run_group
from trainer.rollouts.interruption import Interruption
from trainer.rollouts.losses import Losses
from trainer.rollouts.snapshots import Origin
from trainer.rollouts.turns import EpisodeSettings
from trainer.router_replay.validate import shape_of
from trainer.types import TrainGroup, Trajectory
from trainer.weights.versions import open_versions

log = logging.getLogger(__name__)
T = TypeVar("T")

CONTROL_RUNS = 1
"""Oracle and no-op runs directly before a bundle's first use. `tasks.run_controls` does three of each."""

QUICK_CONTROLS = 3
"""Gradings of these controls: the oracle, no action, one wrong patch."""

SERVER_SECONDS = 90.0
"""Seconds that a worker waits for a restarting inference server."""

NO_SPACE_SECONDS = 15.0
"""Seconds before a group is retried after the disk was full."""

stopping = threading.Event()
"""Set when this worker process is asked to stop. Its groups then return to the queue immediately."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the episodes of a group need, read from the database once."""

    task: TaskSpec
    config: RLConfig
    seed: int
    deployment: DeploymentSpec | None
    """Weights to serve. None for a policy behind an endpoint."""
    endpoint: Endpoint | None = None
    interruption: Interruption | None = None
    fork: tuple[Fork, Trajectory] | None = None
    """The fork and its recorded parent."""


def execute(group_id: int) -> str:
    """Run a group to its end. Returns the outcome that the log has."""
    owner = f"{leases.identity('rollout')}/{threading.get_ident() % 10_000}"
    claim = survives_restart(services.claim)(group_id=group_id, owner=owner, seconds=env().group_lease_seconds)
    if claim is None:
        return "nothing to do"
    group = claim.group
    with logs.lines_of(group.run_id or (group.evaluation.run_id if group.evaluation else None)):
        outcome = _execute_claimed(group, claim.held)
        log.info("group %d: %s", group_id, outcome)
    return outcome


def _execute_claimed(group: Group, held: leases.Held) -> str:
    leases.keeper.keep(held)
    try:
        return _run_claimed(group, held)
    except leases.LeaseLost as error:
        return f"abandoned: {error}"
    except (GroupEnded, ForkImpossible) as error:
        if stopping.is_set():
            survives_restart(services.give_back)(group=group, held=held)
            return "given back: the worker stops"
        survives_restart(services.drop_claimed)(group=group, held=held, loss=loss_of(error))
        return f"dropped: {error}"
    except Exception as error:
        if full := disk.why_full(error):
            return _wait_for_space(group, held, full)
        # Whatever went wrong here is not the policy's doing: an infra error with its cause, never a reward.
        expected = isinstance(error, GroupFailed | InferenceError)
        cause = loss_of(error)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "group %d failed: %s",
            group.pk,
            cause,
            exc_info=not expected,
        )
        try:
            again = survives_restart(services.fail)(group=group, held=held, loss=cause)
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
    _require_proof(group, plan, held)
    if plan.deployment is not None:
        ensure_deployment(plan.deployment)
    began = timezone.now()
    recorder = Recorder(f"groups/{group.pk}/{held.token}")
    seconds = group_deadline(
        plan.config, plan.task, episodes=env().rollout_concurrency * group.size, slots=sandboxes_at_once()
    )
    result = _wait(_episodes(group, plan, recorder), group=group, held=held, seconds=seconds)
    ready = timezone.now()
    if group.fork and (forked := result.trajectories[0].forked):
        survives_restart(forks.note_start)(fork=group.fork, replayed=forked.replayed)
    if result.train_group is None:
        cause = result.loss
        if cause.outcome is Cause.DISK_FULL:
            raise disk.DiskFull(f"{cause}; free some space below {env().data}, {disk.REMEDY}")
        if cause.outcome is Cause.STORE_FAILED:
            disk.require_space()
        graded = graded_of(result, recorder)
        again = survives_restart(services.fail)(
            group=group, held=held, loss=cause, graded=graded, infra_errors=result.infra_errors
        )
        tracing.trace(group, result.trajectories, began=began, graded=ready, now=timezone.now())
        return f"failed ({'will be tried again' if again else 'dropped'}): {cause}"
    if group.run is not None:
        _check(result.train_group, plan)
    done = accept_result(group=group, held=held, task=plan.task, config=plan.config, result=result, recorder=recorder)
    tracing.trace(group, result.trajectories, began=began, graded=ready, now=timezone.now())
    return "accepted" if done else "was ended"


def _check(train_group: TrainGroup, plan: Plan) -> None:
    """Raises InvalidEngineResponse, GroupRefused, GroupStale. The store is the truth about versions: engines have
    their weights from it."""
    assert plan.deployment is not None and plan.deployment.store is not None, "a run samples from its weight store"
    check_group(
        train_group,
        published=max(open_versions(plan.deployment.store).all(), default=-1),
        staleness_limit=plan.config.staleness_limit,
        shape=shape_of(Path(plan.deployment.policy_dir)),
    )


def make_plan(group: Group) -> Plan:
    """Plan of a group of a run, an evaluation or a fork."""
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
            cause = f"the endpoint {evaluation.policy.name} cannot be asked: {error}"
            raise GroupFailed(Cause.POLICY_UNUSABLE, cause) from error
        return Plan(task, config, evaluation.seed, None, endpoint, interrupted)
    context, kv_cache = config.sampling.max_context_tokens, config.sampling.kv_cache_mib
    if evaluation.run is not None:
        spec = DeploymentSpec(
            name=f"eval-{evaluation.pk}",
            policy_dir=str(starting_folder(evaluation.run)),
            store=weights_folder(evaluation.run),
            version=evaluation.version,
            max_model_len=context,
            kv_cache_mib=kv_cache,
        )
    else:
        weights = resolve(f"{evaluation.policy.name}@{evaluation.version}")
        spec = DeploymentSpec(
            name=f"eval-{evaluation.pk}", policy_dir=str(weights.path), max_model_len=context, kv_cache_mib=kv_cache
        )
    return Plan(task, config, evaluation.seed, spec, interruption=interrupted)


def _check_plays(group: Group, plan: Plan) -> None:
    """The template must be able to drive episodes. It was judged at the import, unless that was before templates were, or
    the folder has changed since. Raises GroupEnded, GroupFailed."""
    if plan.deployment is None or not (problem := template_problem(Path(plan.deployment.policy_dir))):
        return
    if group.run is not None:  # its trainer judges the template as well, and says what becomes of the run
        raise GroupFailed(Cause.POLICY_UNUSABLE, cannot_play(group.run.configuration.policy, problem))
    owner = group.evaluation or group.fork
    assert owner is not None, "a group has one owner"
    policy = owner.policy if isinstance(owner, Evaluation) else forks.who(owner)
    survives_restart(note_template_problem)(policy=policy, problem=problem)
    raise GroupEnded(Cause.POLICY_UNUSABLE, cannot_play(policy.name, problem))


deployed_at: dict[str, float] = {}


def ensure_deployment(spec: DeploymentSpec) -> None:
    """Have the server serve `spec`. Repeats the request every few seconds, since a restarted server may have lost
    it. Raises GroupFailed."""
    if time.monotonic() - deployed_at.get(spec.name, -1e9) < 5.0:
        return
    end = time.monotonic() + SERVER_SECONDS
    while True:
        try:
            inference.deploy(spec)
        except InferenceRefused as error:
            raise GroupFailed(error.outcome, f"the inference engine refuses {spec.name}: {error}") from error
        except InferenceError as error:
            if time.monotonic() > end or stopping.wait(1.0):
                raise GroupFailed(error.outcome, f"deployment {spec.name} is not available: {error}") from error
        else:
            deployed_at[spec.name] = time.monotonic()
            return


async def _episodes(group: Group, plan: Plan, store: Recorder) -> GroupResult:
    loop = episode_loop()
    if plan.endpoint is not None:
        return await _ask_endpoint(group, plan, plan.endpoint, loop, store)
    if plan.fork is None:
        return await _run_group(group, plan, loop, None, store)
    prepared = await forks.start(*plan.fork, task=plan.task, config=plan.config, loop=loop)
    with prepared.lease:
        return await _run_group(group, plan, loop, prepared.origin, store)


async def _ask_endpoint(
    group: Group, plan: Plan, endpoint: Endpoint, loop: EpisodeLoop, store: Recorder
) -> GroupResult:
    config = plan.config
    settings = EpisodeSettings(config.sampling, config.harness, config.reward, plan.interruption)
    async with ChatClient(endpoint) as client:
        on = ChatServices(client, loop.backend, loop.environments, loop.slots, store)

        losses: dict[int, Losses] = defaultdict(Losses)

        async def episode(sample: int, _session: str, _seed: int) -> Trajectory:
            return await run_chat_episode(
                task=plan.task, sample=sample, settings=settings, services=on, losses=losses[sample]
            )

        return await run_attempts(
            episode,
            group_id=f"{group.pk}-{group.attempts}",
            prompt_index=group.prompt_index,
            config=config,
            seed=plan.seed,
            dispatched_version=group.dispatched_version,
        )


async def _run_group(
    group: Group, plan: Plan, loop: EpisodeLoop, origin: Origin | None, store: Recorder
) -> GroupResult:
    assert plan.deployment is not None, "an endpoint has episodes of its own"
    onlookers = Onlookers(group.pk, await loop.open_turns())
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
        checkpoints=StoredCheckpoints(group.pk) if group.run_id else None,
        watch=onlookers,
        observer=onlookers,
        store=store,
        min_version=max(0, group.dispatched_version) if plan.deployment.follow else 0,
    )


def _require_proof(group: Group, plan: Plan, held: leases.Held) -> None:
    """Raises GroupEnded for a task whose controls failed: another group of it may have found that since this one was
    dispatched. Releases are frozen, so their evaluations play what was published."""
    version = group.task_version
    if version.proof is None:
        _prove_task(group, plan, held)
    elif not version.proof and group.run is not None:
        raise _rejected((version.controls or {}).get("reason", ""))


def _rejected(reason: str) -> GroupEnded:
    return GroupEnded(Cause.TASK_INVALID, f"the task fails validation and was rejected: {reason}")


def _prove_task(group: Group, plan: Plan, held: leases.Held) -> None:
    """Run the controls of a bundle that has none of the present grading. Raises GroupEnded if they fail."""
    from sandbox.grading.controls import run_controls

    loop = episode_loop()
    work = run_controls(backend=loop.backend, environments=loop.environments, task=plan.task, k=CONTROL_RUNS)
    controls = _wait(work, group=group, held=held, seconds=QUICK_CONTROLS * grading_seconds(plan.task))
    if not controls.graded:
        raise GroupFailed(Cause.HOST_FAILED, f"the task could not be validated: {controls.reason}")
    survives_restart(record_controls)(
        version=group.task_version, controls=controls.model_dump(mode="json"), ok=controls.ok
    )
    if not controls.ok:
        raise _rejected(controls.reason)


def _wait(work: Coroutine[Any, Any, T], *, group: Group, held: leases.Held, seconds: float) -> T:
    """Result of `work` on the episode loop. If the lease is lost, the group is no longer wanted, or `seconds` have
    passed, cancels it and raises LeaseLost, GroupEnded or GroupFailed."""
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
                raise GroupEnded(Cause.CANCELLED, "the worker stops")
            if time.monotonic() > end:
                raise GroupFailed(Cause.GROUP_DEADLINE, f"the group did not end within {seconds:.0f} s")
            if _unwanted(group):
                raise GroupEnded(Cause.CANCELLED, "cancelled: its run or evaluation has ended")
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
