"""Writes of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.evals.models import EVALUATION_LEGAL, Evaluation, EvaluationState, Phase, Release
from composer_web.live.hints import hint
from composer_web.ops.errors import Conflict, UserError
from composer_web.ops.history import IllegalTransition, change_state
from composer_web.ops.outbox import enqueue
from composer_web.policies.models import Policy
from composer_web.policies.selectors import resolve
from composer_web.policies.services import describe_architecture
from composer_web.runs.metrics import record
from composer_web.runs.models import Run
from composer_web.runs.services import add_event
from composer_web.tasks.models import Suite
from trainer.config import HarnessConfig, RewardConfig, RLConfig, SamplingConfig


@transaction.atomic
def create_evaluation(
    *,
    policy: Policy,
    version: int,
    suite: Suite,
    tasks: int,
    samples: int,
    seed: int = 0,
    run: Run | None = None,
    phase: str = Phase.ALONE,
    sampling: SamplingConfig | None = None,
    harness: HarnessConfig | None = None,
    reward: RewardConfig | None = None,
    release: Release | None = None,
    effort: str = "",
    price: Mapping[str, float] | None = None,
    actor: User | None = None,
) -> Evaluation:
    """An evaluation that starts at once. Raises UserError. One per run, version and phase: asking again returns it."""
    if run is not None:
        found = Evaluation.objects.filter(run=run, version=version, phase=phase).first()
        if found is not None:
            return found
    usable = tasks if release else suite.memberships.exclude(task_version__controls_ok=False).count()
    if not usable:
        raise UserError("suite", f"suite {suite.name!r} has no usable tasks; build it or look at its rejected controls")
    if not 1 <= samples <= 64:
        raise UserError("samples", f"1 to 64 rollouts a task, not {samples}")
    if tasks < 1:
        raise UserError("tasks", f"at least one task, not {tasks}")
    sampling, harness, reward = sampling or SamplingConfig(), harness or HarnessConfig(), reward or RewardConfig()
    evaluation = Evaluation.objects.create(
        run=run,
        policy=policy,
        version=version,
        suite=suite,
        release=release,
        effort=effort,
        phase=phase,
        tasks=min(tasks, usable),
        samples=samples,
        temperature=sampling.temperature,
        seed=seed,
        created_by=actor,
        conditions={
            "sampling": sampling.model_dump(),
            "harness": harness.model_dump(),
            "reward": reward.model_dump(),
            **({"price": dict(price)} if price else {}),
        },
    )
    audit(
        actor=actor,
        action="eval.create",
        target=f"eval:{evaluation.pk}",
        policy=policy.name,
        version=version,
        suite=suite.name,
    )
    enqueue("evals.start", {"evaluation_id": evaluation.pk}, queue="control", key=f"start:{evaluation.pk}")
    hint("evals", *([f"run:{run.pk}"] if run else []))
    return evaluation


def evaluate(
    *,
    reference: str,
    suite: Suite,
    tasks: int,
    samples: int,
    temperature: float,
    seed: int = 0,
    actor: User | None = None,
) -> Evaluation:
    """Evaluate `name` or `name@version` on a suite, on its own. Raises UserError."""
    if not 0 < temperature <= 2:
        raise UserError("temperature", f"the temperature is above 0 and at most 2, not {temperature}")
    weights = resolve(reference)
    describe_architecture(weights.path)  # refuses weights that cannot be read
    return create_evaluation(
        policy=weights.policy,
        version=weights.version,
        suite=suite,
        tasks=tasks,
        samples=samples,
        seed=seed,
        sampling=SamplingConfig(temperature=temperature),
        actor=actor,
    )


@transaction.atomic
def for_version(*, run: Run, version: int) -> Evaluation | None:
    """The evaluation that the run's configuration asks for at this version: before, during (cheaper) or after."""
    stage = run.configuration.stage
    if not isinstance(stage, RLConfig) or not stage.eval_suite:
        return None
    if version == 0:
        phase, samples = Phase.BEFORE, stage.eval_samples
    elif version >= stage.steps:
        phase, samples = Phase.AFTER, stage.eval_samples
    elif version % stage.eval_every == 0:
        phase, samples = Phase.DURING, max(1, stage.eval_samples // 4)
    else:
        return None
    suite = Suite.objects.filter(name=stage.eval_suite).first()
    if suite is None:
        add_event(
            run=run,
            kind="alert",
            level="error",
            message=f"suite {stage.eval_suite!r} is gone: no evaluation of version {version}",
        )
        return None
    assert run.policy_out is not None
    return create_evaluation(
        run=run,
        policy=run.policy_out,
        version=version,
        suite=suite,
        phase=phase,
        tasks=stage.eval_tasks,
        samples=samples,
        seed=run.seed + 1,
        sampling=stage.sampling,
        harness=stage.harness,
        reward=stage.reward,
    )


def mark_running(*, evaluation: Evaluation) -> Evaluation:
    return _move(evaluation, EvaluationState.RUNNING, "groups dispatched", started_at=timezone.now())


@transaction.atomic
def mark_finished(*, evaluation: Evaluation, results: dict[str, Any]) -> Evaluation:
    _move(evaluation, EvaluationState.FINISHED, "all groups ended", results=results, finished_at=timezone.now())
    run = evaluation.run
    if run is not None:
        named = {"eval/pass1": results.get("pass1"), "eval/best_of_k": results.get("best")}
        values = {name: value for name, value in named.items() if value is not None}
        record(run=run, step=evaluation.version, values=values)
        add_event(
            run=run,
            kind="eval",
            step=evaluation.version,
            data={"evaluation": evaluation.pk},
            message=f"{evaluation.suite.name} {evaluation.phase} (version {evaluation.version}): "
            f"pass@1 {results['pass1']:.1%}, best of {results['best_of']} {results['best']:.1%}",
        )
    return evaluation


def mark_failed(*, evaluation: Evaluation, cause: str) -> Evaluation:
    _move(evaluation, EvaluationState.FAILED, cause, failure=cause, finished_at=timezone.now())
    if evaluation.run is not None:
        add_event(run=evaluation.run, kind="eval", level="error", message=f"evaluation {evaluation.pk} failed: {cause}")
    return evaluation


@transaction.atomic
def cancel(*, evaluation: Evaluation, actor: User | None = None) -> Evaluation:
    """Raises Conflict when it has ended."""
    _move(evaluation, EvaluationState.CANCELLED, "cancelled", finished_at=timezone.now())
    audit(actor=actor, action="eval.cancel", target=f"eval:{evaluation.pk}")
    enqueue("rollouts.drop_open", {"evaluation_id": evaluation.pk}, queue="control")
    return evaluation


def _move(evaluation: Evaluation, to: str, reason: str, **fields: Any) -> Evaluation:
    with transaction.atomic():
        try:
            change_state(evaluation, to, legal=EVALUATION_LEGAL, reason=reason, **fields)
        except IllegalTransition as error:
            raise Conflict(str(error), "state") from error
        hint("evals", f"eval:{evaluation.pk}", *([f"run:{evaluation.run_id}"] if evaluation.run_id else []))
    return evaluation
