"""Writes of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.alerts.models import Event
from composer_web.alerts.telling import tell
from composer_web.core.errors import Conflict, UserError
from composer_web.core.history import IllegalTransition, change_state
from composer_web.core.queue.outbox import enqueue
from composer_web.evals.models import EVALUATION_LEGAL, Evaluation, EvaluationState, Phase, Release
from composer_web.live.hints import hint
from composer_web.policies import endpoints
from composer_web.policies.models import Policy
from composer_web.policies.selectors import check_plays, resolve
from composer_web.policies.services import describe_architecture
from composer_web.runs import defaults
from composer_web.runs.metrics import record
from composer_web.runs.models import Run
from composer_web.runs.services import add_event
from composer_web.tasks.models import Suite
from trainer.config import HarnessConfig, RewardConfig, RLConfig, RunConfig, SamplingConfig
from trainer.rollouts.interruption import Interruption

FULL = SamplingConfig(
    max_turn_tokens=16_384, max_context_tokens=131_072, max_turns=100, episode_seconds=1800.0, engine_seconds=3600.0
)
"""Episode limits of a policy behind an endpoint, whose context is not known here."""
TEMPERATURE = 0.8
"""Sampling temperature of an evaluation that names none."""


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
    interruption: Interruption | None = None,
    grader: Policy | None = None,
    actor: User | None = None,
) -> Evaluation:
    """Create and start an evaluation. Idempotent per run, version and phase. Raises UserError."""
    if run is not None:
        found = Evaluation.objects.filter(run=run, version=version, phase=phase).first()
        if found is not None:
            return found
    usable = tasks if release else suite.memberships.exclude(task_version__controls_ok=False).count()
    if not usable:
        raise UserError(
            "suite", f"suite {suite.name!r} has no usable tasks; build it or see why validation rejected its tasks"
        )
    if not 1 <= samples <= 64:
        raise UserError("samples", f"1 to 64 rollouts a task, not {samples}")
    if tasks < 1:
        raise UserError("tasks", f"at least one task, not {tasks}")
    if not 0 <= seed < 2**63:
        raise UserError("seed", f"a seed is a whole number from 0 to 2^63 - 1, not {seed}")
    if run is not None and isinstance(stage := run.configuration.stage, RLConfig):  # its version may not be on disk
        sampling, harness = sampling or stage.sampling, harness or stage.harness
    if sampling is None or harness is None:
        own_sampling, own_harness = limits(
            policy, temperature=sampling.temperature if sampling else TEMPERATURE, version=version, suite=suite.name
        )
        sampling, harness = sampling or own_sampling, harness or own_harness
    reward = reward or RewardConfig()
    evaluation = Evaluation.objects.create(
        run=run,
        policy=policy,
        version=version,
        suite=suite,
        release=release,
        effort=effort,
        interruption=interruption.model_dump() if interruption else None,
        grader=grader,
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
    turns: int | None = None,
    context_tokens: int | None = None,
    seed: int = 0,
    actor: User | None = None,
) -> Evaluation:
    """Evaluate `name` or `name@version` on a suite, outside of a run. Without `turns` and `context_tokens` both are
    derived. Raises UserError."""
    policy, version = subject(reference)
    sampling, harness = limits(
        policy,
        temperature=temperature,
        turns=turns,
        context_tokens=context_tokens,
        version=version,
        suite=suite.name,
    )
    return create_evaluation(
        policy=policy,
        version=version,
        suite=suite,
        tasks=tasks,
        samples=samples,
        seed=seed,
        sampling=sampling,
        harness=harness,
        price=endpoints.prices(policy.endpoint) if policy.is_endpoint else None,
        effort=policy.endpoint.effort if policy.is_endpoint else "",
        actor=actor,
    )


PROBE_TASKS, PROBE_SAMPLES = 3, 2


def probe(*, run: Run, actor: User | None = None) -> Evaluation:
    """Play a few tasks of a run's suite as the run would, with its starting policy: does it act, and does it ever pass?

    The evaluation shows pass rate, stop reasons and tokens. Raises UserError for a run that plays no tasks.
    """
    stage = run.configuration.stage
    suite = Suite.objects.filter(name=stage.suite).first() if isinstance(stage, RLConfig) else None
    if not isinstance(stage, RLConfig) or suite is None or stage.sessions.channel:
        raise UserError("run", f"run {run.pk} plays no tasks of a suite; a probe is for RL on tasks")
    return create_evaluation(
        policy=run.policy_in,
        version=run.policy_in_version,
        suite=suite,
        tasks=PROBE_TASKS,
        samples=PROBE_SAMPLES,
        seed=run.seed,
        sampling=stage.sampling,
        harness=stage.harness,
        reward=stage.reward,
        actor=actor,
    )


def subject(reference: str) -> tuple[Policy, int]:
    """Resolve `name` or `name@version`: readable weights that can play episodes, or an endpoint in use (version 0).
    Raises UserError."""
    policy = Policy.objects.filter(name=reference, kind="endpoint").select_related("endpoint").first()
    if policy is not None:
        endpoints.asked(policy.endpoint)  # refuses an address or key that cannot be used
        return policy, 0
    weights = resolve(reference)
    describe_architecture(weights.path)  # refuses weights that cannot be read
    check_plays(weights.policy)
    return weights.policy, weights.version


def limits(
    policy: Policy,
    *,
    temperature: float,
    turns: int | None = None,
    context_tokens: int | None = None,
    version: int = 0,
    suite: str = "",
) -> tuple[SamplingConfig, HarnessConfig]:
    """Episode limits and tools, derived from the policy, the suite and the engine. Raises UserError: also if an episode
    could not begin in such a context."""
    if not 0 < temperature <= 2:
        raise UserError("temperature", f"the temperature is above 0 and at most 2, not {temperature}")
    if turns is not None and not 1 <= turns <= 1000:
        raise UserError("turns", f"1 to 1000 turns, not {turns}")
    if context_tokens is not None and not 256 <= context_tokens <= 10_000_000:
        raise UserError("context_tokens", f"256 to 10,000,000 tokens of an episode, not {context_tokens}")
    chosen = {"max_turns": turns, "max_context_tokens": context_tokens}
    given = {name: value for name, value in chosen.items() if value is not None}
    if policy.is_endpoint:
        return FULL.model_copy(update={"temperature": temperature, **given}), HarnessConfig(profile="full")
    stage = RLConfig(
        suite=suite,
        eval_suite=None,
        sampling=SamplingConfig(temperature=temperature).model_copy(update=given),
        harness=HarnessConfig(end_on_malformed_call=policy.toy),
    )
    config = RunConfig(name="evaluation", policy=policy.at(version), stage=stage)
    known = defaults.facts_of(config)
    found = defaults.with_facts(config, known).config
    try:
        defaults.check(found, replace(known, trainer_bytes=None))  # nothing is trained
    except UserError as error:
        raise UserError("context_tokens", error.message) from error
    assert isinstance(found.stage, RLConfig)
    return found.stage.sampling, found.stage.harness


@transaction.atomic
def for_version(*, run: Run, version: int) -> Evaluation | None:
    """Evaluation that the run's configuration requires at this version: before, during (cheaper) or after."""
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
        record(run=run, step=evaluation.version, values=_points(run, evaluation, results))
        add_event(
            run=run,
            kind="eval",
            step=evaluation.version,
            data={"evaluation": evaluation.pk},
            message=f"{evaluation.suite.name} {evaluation.phase} (version {evaluation.version}): "
            f"pass@1 {results['pass1']:.1%}, best of {results['best_of']} {results['best']:.1%}",
        )
    _tell(evaluation, Event.EVALUATION_FINISHED)
    return evaluation


def _points(run: Run, evaluation: Evaluation, results: dict[str, Any]) -> dict[str, float]:
    """Points of the run's curves. Each best-of-K curve has one K: `eval/best_of_k` uses the run's `eval_samples`,
    which evaluations during the run lack; `eval/best_of/K` uses the K in its name."""
    stage = run.configuration.stage
    whole = isinstance(stage, RLConfig) and evaluation.samples == stage.eval_samples
    named = {"eval/pass1": results.get("pass1"), "eval/best_of_k": results.get("best") if whole else None}
    named |= {f"eval/best_of/{k}": value for k, value in results.get("best_at", {}).items() if k != "1"}
    return {name: value for name, value in named.items() if value is not None}


@transaction.atomic
def mark_failed(*, evaluation: Evaluation, cause: str) -> Evaluation:
    _move(evaluation, EvaluationState.FAILED, cause, failure=cause, finished_at=timezone.now())
    _tell(evaluation, Event.EVALUATION_FAILED)
    if evaluation.run is not None:
        add_event(run=evaluation.run, kind="eval", level="error", message=f"evaluation {evaluation.pk} failed: {cause}")
    return evaluation


@transaction.atomic
def cancel(*, evaluation: Evaluation, actor: User | None = None) -> Evaluation:
    """Raises Conflict if it has ended."""
    _move(evaluation, EvaluationState.CANCELLED, "cancelled", finished_at=timezone.now())
    audit(actor=actor, action="eval.cancel", target=f"eval:{evaluation.pk}")
    enqueue("rollouts.drop_open", {"evaluation_id": evaluation.pk}, queue="maintenance")
    return evaluation


def _tell(evaluation: Evaluation, event: Event) -> None:
    subject, pass1 = evaluation.policy.at(evaluation.version), evaluation.results.get("pass1")
    outcome = evaluation.failure or (f"pass@1 {pass1:.1%}" if pass1 is not None else "nothing to count")
    tell(
        event,
        title=f"Evaluation {evaluation.pk} {evaluation.state}: {subject}",
        message=f"{subject} on {evaluation.suite.name}: {outcome}",
        about=f"eval:{evaluation.pk}",
        path=f"/evaluations/{evaluation.pk}/",
        evaluation=evaluation.pk,
        project=evaluation.project_id,
        policy=subject,
        suite=evaluation.suite.name,
        run=evaluation.run_id,
        pass1=pass1,
        best=evaluation.results.get("best"),
    )


def _move(evaluation: Evaluation, to: str, reason: str, **fields: Any) -> Evaluation:
    with transaction.atomic():
        try:
            change_state(evaluation, to, legal=EVALUATION_LEGAL, reason=reason, **fields)
        except IllegalTransition as error:
            raise Conflict(str(error), "state") from error
        hint("evals", f"eval:{evaluation.pk}", *([f"run:{evaluation.run_id}"] if evaluation.run_id else []))
    return evaluation


def set_grader(*, evaluation: Evaluation, grader: str, actor: User | None = None) -> Evaluation:
    """Have a finished evaluation graded by this endpoint, also again: what it graded already is taken as it is.
    An empty name runs the rules alone. Raises UserError, Conflict."""
    if evaluation.state != EvaluationState.FINISHED:
        raise Conflict(f"evaluation {evaluation.pk} is {evaluation.state}; only a finished one is graded", "state")
    policy = grading_policy(grader) if grader else None
    with transaction.atomic():
        Evaluation.objects.filter(pk=evaluation.pk).update(grader=policy)
        enqueue("evals.grade", {"evaluation_id": evaluation.pk}, queue="control")
        audit(actor=actor, action="eval.grade", target=f"eval:{evaluation.pk}", grader=grader)
    return evaluation


def grading_policy(name: str) -> Policy:
    """Endpoint of this name as a grader. Raises UserError."""
    policy = Policy.objects.filter(name=name, kind="endpoint").select_related("endpoint").first()
    if policy is None:
        raise UserError("grader", f"there is no endpoint {name!r}; add one on the page of policies")
    endpoints.asked(policy.endpoint)
    return policy
