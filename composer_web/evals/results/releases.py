"""Writes of benchmark releases: publish, refresh, run a policy, check against training suites."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from django.db import transaction
from django.db.models import CharField, F, Func, QuerySet

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import UserError
from composer_web.core.queue.outbox import enqueue
from composer_web.evals.models import Evaluation, Release, ReleaseTask
from composer_web.evals.results import leaderboard
from composer_web.evals.results.statistics import measure, summarize
from composer_web.evals.services import create_evaluation, grading_policy, limits, subject
from composer_web.live.hints import hint
from composer_web.policies import endpoints
from composer_web.tasks.models import Suite, TaskVersion
from trainer.rollouts.interruption import Interruption

BATCH = 500
NAMED = 3
"""Maximum number of tasks named in an error."""


@transaction.atomic
def publish(
    *,
    benchmark: str,
    suite: Suite,
    keep: bool = False,
    unreviewed: bool = False,
    notes: str = "",
    actor: User | None = None,
) -> Release:
    """The next release of a benchmark from the tasks of a suite whose controls passed; the first has number 1.

    `keep` takes over the tasks of the release before, but for those that its results flag; the suite's follow. Raises
    UserError when the suite has none that passed its controls, when nothing would differ from the release before, or
    when two reviewers have not admitted each task; `unreviewed` publishes those too, and the release says so for good.
    """
    previous = Release.objects.select_for_update(of=("self",)).filter(benchmark=benchmark).order_by("-number").first()
    fresh = list(suite.versions.filter(controls_ok=True).order_by("memberships__position").distinct())
    if not fresh:
        raise UserError(
            "suite", f"no task of suite {suite.name!r} has passed validation; validate them on the suite's page"
        )
    kept = _kept(previous) if keep and previous else []
    versions = list({version.pk: version for version in (*kept, *fresh)}.values())
    missing = _not_admitted(versions)
    if missing and not unreviewed:
        raise UserError("suite", _who_is_missing(suite, missing, len(versions)))
    digest = hashlib.sha256("\n".join(version.bundle_hash for version in versions).encode()).hexdigest()
    if previous and digest == previous.digest:
        raise UserError("suite", f"{previous} has exactly these tasks; choose a suite with others")
    release = Release(
        benchmark=benchmark,
        number=previous.number + 1 if previous else 1,
        suite=suite,
        parent=previous,
        notes=notes,
        digest=digest,
        unreviewed=len(missing),
        created_by=actor,
    )
    release.clean_fields(exclude=["statistics", "contamination", "notes"])
    measured = [measure(version.bundle) for version in versions]
    release.statistics = summarize(measured).model_dump()
    release.save()
    before = set(previous.members.values_list("task_version_id", flat=True)) if previous else set()
    ReleaseTask.objects.bulk_create(
        [
            ReleaseTask(
                release=release, task_version=version, position=i, carried=version.pk in before, **one.model_dump()
            )
            for i, (version, one) in enumerate(zip(versions, measured, strict=True))
        ],
        batch_size=BATCH,
    )
    audit(actor=actor, action="release.publish", target=f"release:{release.pk}", name=str(release), tasks=len(versions))
    enqueue("evals.check_contamination", {"release_id": release.pk}, queue="maintenance")
    hint("evals")
    return release


def _not_admitted(versions: Sequence[TaskVersion]) -> list[str]:
    """Names of tasks without two reviewers' admission of exactly this version."""
    state = Func(F("pk"), function="opencomposer_review_state", output_field=CharField())
    found = TaskVersion.objects.filter(pk__in=[version.pk for version in versions]).annotate(state=state)
    return list(found.exclude(state="admitted").order_by("task__slug").values_list("task__slug", flat=True))


def _who_is_missing(suite: Suite, missing: Sequence[str], of: int) -> str:
    names = ", ".join(missing[:NAMED]) + (f" and {len(missing) - NAMED} more" if len(missing) > NAMED else "")
    return (
        f"two reviewers have not admitted {len(missing)} of {of} tasks: {names}. Have them reviewed (“Add via review” on "
        f"the page of suite {suite.name!r}), or publish them unreviewed, which the release says for good"
    )


def _kept(previous: Release) -> Sequence[TaskVersion]:
    flagged = {task.task_version_id for task in leaderboard.tasks(previous) if task.flag}
    found: QuerySet[TaskVersion] = previous.versions.order_by("release_members__position").distinct()
    return [version for version in found if version.pk not in flagged]


def run(
    *,
    release: Release,
    reference: str,
    samples: int,
    temperature: float = 0.8,
    effort: str = "",
    price_input: float | None = None,
    price_output: float | None = None,
    turns: int | None = None,
    context_tokens: int | None = None,
    interrupt: bool = False,
    grader: str = "",
    seed: int = 0,
    actor: User | None = None,
) -> Evaluation:
    """`samples` passes of a policy or endpoint over every task of a release. Raises UserError.

    Prices are dollars for a million tokens, fixed with the evaluation so that its cost never changes; those of an
    endpoint unless others are given. With `interrupt` a person stops every rollout half-way: that evaluation shows
    whether it is obeyed, and is ranked nowhere. `grader` names an endpoint that grades the side evaluations.
    """
    policy, version = subject(reference)
    known = endpoints.prices(policy.endpoint) if policy.is_endpoint else {}
    given = {"input": price_input, "output": price_output}
    for name, price in given.items():
        if price is not None and not 0 <= price <= 10_000:
            raise UserError(f"price_{name}", f"a price is 0 to 10,000 dollars for a million tokens, not {price}")
    if len(effort) > 12:
        raise UserError("effort", f"a level of effort has at most 12 characters, not {len(effort)}")
    sampling, harness = limits(
        policy,
        temperature=temperature,
        turns=turns,
        context_tokens=context_tokens,
        version=version,
        suite=release.suite.name,
    )
    return create_evaluation(
        policy=policy,
        version=version,
        suite=release.suite,
        release=release,
        effort=effort or (policy.endpoint.effort if policy.is_endpoint else ""),
        price=known | {name: price for name, price in given.items() if price is not None},
        tasks=release.members.count(),
        samples=samples,
        seed=seed,
        sampling=sampling,
        harness=harness,
        interruption=Interruption() if interrupt else None,
        grader=grading_policy(grader) if grader else None,
        actor=actor,
    )


@transaction.atomic
def request_check(*, release: Release, actor: User | None = None) -> None:
    """Request a comparison of the release with the current training suites."""
    enqueue("evals.check_contamination", {"release_id": release.pk}, queue="maintenance")
    audit(actor=actor, action="release.check", target=f"release:{release.pk}")
