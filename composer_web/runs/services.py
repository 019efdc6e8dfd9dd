"""Writes of runs: creation, validation, and all state changes."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from typing import Any, Literal

from django.db import transaction
from django.utils import timezone
from pydantic import ValidationError

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.alerts.models import Event
from composer_web.alerts.telling import tell
from composer_web.core.errors import Conflict, UserError, worded
from composer_web.core.history import IllegalTransition, change_state
from composer_web.core.queue.outbox import enqueue
from composer_web.env import REPOSITORY
from composer_web.live.hints import hint
from composer_web.policies.models import Policy
from composer_web.policies.selectors import Weights, check_plays, resolve
from composer_web.policies.services import describe_architecture
from composer_web.runs import chain, config_checks, defaults, resumable
from composer_web.runs.checks import check_feedback, check_reward, check_words
from composer_web.runs.messages import send_look, send_run
from composer_web.runs.models import RUN_LEGAL, Run, RunEvent, RunState, Sweep, TrainBatch, TrainedStep
from composer_web.tasks.models import Suite
from trainer.config import RLConfig, RunConfig
from trainer.defaults import Derived

Level = Literal["info", "warning", "error"]
TOLD = {
    RunState.FINISHED.value: (Event.RUN_FINISHED, "finished"),
    RunState.FAILED.value: (Event.RUN_FAILED, "failed"),
    RunState.CANCELLED.value: (Event.RUN_STOPPED, "was stopped"),
}
"""State that triggers webhooks → (event, word for its title)."""


def parse_config(data: Mapping[str, Any]) -> RunConfig:
    """Parse the configuration. Raises UserError with one message per invalid field (dotted paths such as
    `stage.steps`)."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        fields: dict[str, str] = {}
        for item in error.errors(include_url=False):
            where = [str(part) for part in item["loc"] if part not in ("midtrain", "sft", "rl")]
            fields.setdefault(".".join(where) or "stage", worded(item, secrets=False))
        first = next(iter(fields))
        raise UserError(first, f"{first}: {fields[first]}", fields=fields) from error


def check_config(config: RunConfig, *, weights: Weights | None = None) -> list[str]:
    """Run the checks that need the control plane, against `weights` in place of the policy's own. Returns warnings for the
    user. Raises UserError."""
    return _checked(config, weights or resolve(config.policy))[1]


def _checked(config: RunConfig, weights: Weights) -> tuple[Derived, list[str]]:
    """The configuration with its automatic settings filled in, and warnings. Raises UserError."""
    check_words(config)
    describe_architecture(weights.path)  # refuses weights that cannot be read
    known = defaults.facts_of(config, weights)
    found = defaults.with_facts(config, known)
    config = found.config
    warnings = defaults.check(config, known)
    if isinstance(config.stage, RLConfig):
        stage = config.stage
        check_plays(weights.policy)
        check_reward(stage.reward, "stage.reward.")
        check_feedback(stage.textual_feedback, "stage.textual_feedback.")
        warnings += config_checks.warnings_of(config)
        drafts = stage.sampling.num_speculative_tokens
        if drafts and not stage.mtp.joint and not (weights.path / "mtp").is_dir():
            warnings.append(
                f"{config.policy!r} has no draft head, so stage.sampling.num_speculative_tokens={drafts} changes nothing; "
                "set stage.mtp.num_speculative_tokens too, and the run trains one while engines draft with it"
            )
        need = stage.steps * stage.groups_per_step if not stage.sessions.channel else 0
        usable, rejected = _usable_tasks(stage.suite, "stage.suite") if need else (0, 0)
        if usable < need:
            raise UserError(
                "stage.suite",
                f"{stage.steps} steps × {stage.groups_per_step} groups need {need} prompts "
                f"and suite {stage.suite!r} has {usable}{_beside(rejected)}; each prompt is used once, so build a larger "
                "suite or lower the steps",
            )
        if need and usable < need * 1.02:
            warnings.append(
                f"suite {stage.suite!r} has {usable - need} prompts to spare: dropped groups may leave too few"
            )
        if stage.eval_suite:
            held_out, rejected = _usable_tasks(stage.eval_suite, "stage.eval_suite")
            if held_out < stage.eval_tasks:
                warnings.append(
                    f"evaluations use all {held_out} tasks of {stage.eval_suite!r}{_beside(rejected)}, "
                    f"fewer than {stage.eval_tasks}"
                )
    else:
        warnings += config_checks.warnings_of(config)
        if weights.policy.template_problem:
            warnings.append(f"what is trained here cannot play episodes: {weights.policy.template_problem}")
    if weights.policy.toy:
        warnings.append("this policy is a toy: it shows that the machinery learns and is good for nothing else")
    return found, warnings


def _beside(rejected: int) -> str:
    return f" (and {rejected} that failed validation)" if rejected else ""


def _usable_tasks(name: str, field: str) -> tuple[int, int]:
    """Number of tasks in a suite that may be trained on, and number rejected by their controls. Raises UserError."""
    suite = Suite.objects.filter(name=name).first()
    if suite is None:
        known = (
            ", ".join(Suite.objects.values_list("name", flat=True)[:8])
            or "none yet; generate tasks (Tasks → Generators) or load the sample data (home page, manage.py build_suites)"
        )
        raise UserError(field, f"there is no suite {name!r}; there are: {known}")
    if suite.retired_at is not None:
        raise UserError(field, f"suite {name!r} is retired; use {suite.replaced_by or 'another one'}")
    rejected = suite.memberships.filter(task_version__controls_ok=False).count()
    return suite.memberships.count() - rejected, rejected


@transaction.atomic
def create_run(
    *,
    config: RunConfig,
    actor: User | None = None,
    parent: Run | None = None,
    sweep: Sweep | None = None,
    start_after: Run | None = None,
) -> Run:
    """Create a draft. Automatic settings become numbers. With `start_after` it starts from the policy that run trains,
    whatever policy is configured. Raises UserError if the run cannot work or learn, Conflict if it can never start."""
    if start_after is not None:
        start_after = Run.objects.select_for_update(no_key=True).get(pk=start_after.pk)
        chain.require_possible(start_after)
        policy, weights = chain.output(start_after), chain.known_weights(start_after)
        version = start_after.steps_total  # expected; what there is by then is taken
        config = config.model_copy(update={"policy": policy.name})
    else:
        weights = resolve(config.policy)
        policy, version = weights.policy, weights.version
    found, _ = _checked(config, weights)
    config = found.config
    run = Run.objects.create(
        name=config.name,
        kind=config.stage.kind,
        config=config.model_dump(mode="json"),
        derived=defaults.as_rows(found.choices),
        parent=parent,
        sweep=sweep,
        start_after=start_after,
        policy_in=policy,
        policy_in_version=version,
        seed=config.seed,
        steps_total=config.stage.steps,
        code_version=code_version(),
        created_by=actor,
    )
    audit(actor=actor, action="run.create", target=f"run:{run.pk}", name=run.name)
    hint("runs")
    return run


@transaction.atomic
def start_run(*, run: Run, actor: User | None = None) -> Run:
    """Queue a draft for a train worker of its pool, once the run that it starts after has finished. Raises UserError,
    Conflict."""
    before = chain.locked(run)
    check_config(run.configuration, weights=chain.known_weights(before) if before else None)
    policy = chain.output(run)
    _move(run, RunState.QUEUED, actor, "started", policy_out=policy, queued_at=timezone.now(), archived_at=None)
    _send_after(run, before)
    return run


def _send_after(run: Run, before: Run | None) -> None:
    """Ask for a worker now, or leave that to the end of the run before. Raises Conflict."""
    if before is not None:
        chain.require_possible(before)
    if before is None or before.state == RunState.FINISHED:
        send_run(run)


def pause_run(*, run: Run, actor: User | None = None) -> Run:
    """Stop after the current step without losing anything. `resume_run` continues from there. Raises Conflict."""
    to = RunState.PAUSED if _state(run) == RunState.QUEUED else RunState.PAUSING
    return _move(run, to, actor, "paused")


@transaction.atomic
def resume_run(*, run: Run, actor: User | None = None) -> Run:
    """Continue from the last checkpoint with exactly the prompts not consumed yet. Also for a failed run, and with it for
    those that failed since they start after it. Raises Conflict, also when files that it needs were deleted."""
    before = chain.locked(run)
    if _state(run) == RunState.PAUSING:
        return _move(run, RunState.RUNNING, actor, "resumed before it paused", failure="")
    Run.objects.select_for_update(no_key=True).get(pk=run.pk)  # nobody deletes its files meanwhile
    resumable.require_files(run)
    fresh = {"queued_at": timezone.now(), "finished_at": None, "failure": "", "archived_at": None, "lost_in_a_row": 0}
    run = _move(run, RunState.QUEUED, actor, "resumed", **fresh)
    _send_after(run, before)
    for follower in chain.never_started(run):
        resume_run(run=follower, actor=actor)
    return run


@transaction.atomic
def cancel_run(*, run: Run, actor: User | None = None) -> Run:
    """Cancel the run permanently. Workers and the trainer see the state and stop; accepted work is kept. Raises
    Conflict."""
    _move(run, RunState.CANCELLED, actor, "cancelled", finished_at=timezone.now(), phase="")
    enqueue("rollouts.drop_open", {"run_id": run.pk}, queue="maintenance")
    enqueue("evals.cancel_of_run", {"run_id": run.pk}, queue="control")
    _fail_followers(run)
    return run


def mark_running(*, run: Run, owner: str) -> Run:
    """Mark a queued run as running. Idempotent for a running run whose previous trainer was lost."""
    with transaction.atomic():
        state = _state(run)
        if state == RunState.QUEUED:
            fields: dict[str, Any] = {"started_at": run.started_at or timezone.now()}
            if run.start_after is not None:
                fields["policy_in_version"] = chain.final_version(run.start_after)
            run = _move(run, RunState.RUNNING, None, f"taken by {owner}", **fields)
        else:
            run.recoveries += 1
            run.lost_in_a_row += 1
            run.save(update_fields=["recoveries", "lost_in_a_row"])
            add_event(
                run=run,
                kind="recovery",
                level="warning",
                message=f"the trainer was lost; {owner} goes on from the last checkpoint",
            )
    return run


@transaction.atomic
def mark_finished(*, run: Run) -> Run:
    _move(run, RunState.FINISHED, None, "all steps done", finished_at=timezone.now(), phase="")
    enqueue("rollouts.drop_open", {"run_id": run.pk}, queue="maintenance")
    for follower in chain.waiting_for(run):
        send_run(follower)
        hint("runs", f"run:{follower.pk}")
    return run


@transaction.atomic
def mark_failed(*, run: Run, cause: str) -> Run:
    _move(run, RunState.FAILED, None, cause, finished_at=timezone.now(), failure=cause, phase="")
    add_event(run=run, kind="alert", level="error", message=cause)
    enqueue("rollouts.drop_open", {"run_id": run.pk}, queue="maintenance")
    _fail_followers(run)
    return run


def _fail_followers(run: Run) -> None:
    for follower in chain.waiting_for(run):
        mark_failed(run=follower, cause=chain.cause(run))


@transaction.atomic
def pause_for(*, run: Run, cause: str) -> Run:
    """Something that a person must put right first (a full disk): pause with the cause shown, unless it ended meanwhile.

    The trainer that holds the run then marks it paused; `resume_run` goes on from there.
    """
    state = Run.objects.select_for_update().values_list("state", flat=True).get(pk=run.pk)
    if state == RunState.RUNNING:
        _move(run, RunState.PAUSING, None, cause, failure=cause)
        add_event(run=run, kind="alert", level="error", message=f"paused: {cause}")
    return run


def mark_paused(*, run: Run) -> Run:
    return _move(run, RunState.PAUSED, None, "stopped after a step", phase="")


@transaction.atomic
def add_event(
    *,
    run: Run,
    kind: str,
    message: str,
    level: Level = "info",
    step: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> RunEvent:
    event = RunEvent.objects.create(
        run=run,
        kind=kind,
        level=level,
        step=run.step if step is None else step,
        message=message[:4000],
        data=dict(data or {}),
    )
    hint(f"run:{run.pk}")
    return event


@transaction.atomic
def set_progress(*, run: Run, step: int | None = None, total: int | None = None, phase: str | None = None) -> Run:
    values: dict[str, Any] = {"step": step, "steps_total": total, "phase": phase if phase is None else phase[:80]}
    values = {name: value for name, value in values.items() if value is not None}
    Run.objects.filter(pk=run.pk).update(**values)
    for name, value in values.items():
        setattr(run, name, value)
    hint(f"run:{run.pk}", "runs")
    return run


@transaction.atomic
def record_version(*, run: Run, version: int) -> Run:
    """Record that the weight store holds `version`. The version never decreases."""
    Run.objects.filter(pk=run.pk, policy_version__lt=version).update(policy_version=version)
    run.policy_version = max(run.policy_version, version)
    hint(f"run:{run.pk}")
    return run


@transaction.atomic
def record_batch(*, run: Run, step: int, group_ids: list[int]) -> TrainBatch:
    """Record the groups of a step before training. Repeating the same batch is allowed; a different one raises
    Conflict."""
    batch, created = TrainBatch.objects.get_or_create(run=run, step=step, defaults={"group_ids": group_ids})
    if not created and batch.group_ids != group_ids:
        raise Conflict(f"step {step} of run {run.pk} was recorded with other groups")
    return batch


def record_trained(*, run: Run, step: int, digest: str, token: int) -> None:
    """Record that the trainer with this fencing token finished `step` and stored its weights. Idempotent."""
    row = TrainedStep(run=run, step=step, digest=digest, token=token)
    TrainedStep.objects.bulk_create([row], ignore_conflicts=True)


def _state(run: Run) -> str:
    return Run.objects.values_list("state", flat=True).get(pk=run.pk)


def _move(run: Run, to: str, actor: User | None, reason: str, **fields: Any) -> Run:
    with transaction.atomic():
        try:
            change_state(
                run, to, legal=RUN_LEGAL, actor=actor.get_username() if actor else "system", reason=reason, **fields
            )
        except IllegalTransition as error:
            raise Conflict(str(error), "state") from error
        if actor is not None:
            audit(actor=actor, action=f"run.{to}", target=f"run:{run.pk}", reason=reason)
        if to in (RunState.PAUSING, RunState.CANCELLED):
            send_look(run.pk)
        if to in TOLD:
            _tell(run, *TOLD[to], reason)
        hint("runs", f"run:{run.pk}")
    return run


def _tell(run: Run, event: Event, words: str, reason: str) -> None:
    tell(
        event,
        title=f"Run {run.pk} {words}: {run.name}",
        message=f"{run.name} {words} at step {run.step} of {run.steps_total}: {reason}",
        about=f"run:{run.pk}",
        path=f"/runs/{run.pk}/",
        run=run.pk,
        name=run.name,
        project=run.project_id,
        state=run.state,
        step=run.step,
        policy=run.policy_out.name if run.policy_out else None,
    )


@functools.lru_cache(maxsize=1)
def code_version() -> str:
    """Commit of the running code, with a trailing `+` for a modified checkout. Empty outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, timeout=5, check=False
        ).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if commit and git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def output_policy(run: Run) -> Policy:
    assert run.policy_out is not None, "a started run has an output policy"
    return run.policy_out
