"""Screen many drafts in one sandbox: run their tests in turn from an interpreter that has already loaded pytest.

Each draft runs again in other fresh sandboxes, with its neighbours in a different order, and must give the same result.
Only then do its controls run, each in its own sandbox.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox.generators.building.builder import TaskBuilder, controlled, drafted, judge, order_of
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.grading.adapters.base import TestRun
from sandbox.grading.verifiers.batch import Run, collect_all
from sandbox.packages.build import BUILD_LIMITS
from sandbox.tasks.spec import TaskSpec


@dataclass(slots=True)
class Candidate:
    """A part of a package that may yield one task."""

    drafts: Iterator[Draft | Rejected]
    rng: random.Random
    made: TaskSpec | None = None


async def screen(builder: TaskBuilder, drafts: Sequence[Draft]) -> list[TestRun]:
    """Results of each draft's expected tests on its broken checkout, in one fresh sandbox. Raises SandboxError."""
    if not drafts:
        return []
    pristine = {path: builder.read(path) for draft in drafts for path in draft.broken}
    async with await builder.backend.start(
        builder.store.spec(builder.built.environment), limits=BUILD_LIMITS
    ) as sandbox:
        runs = [Run(draft.broken, order_of(builder, draft.expected)) for draft in drafts]
        return await collect_all(sandbox, runs, pristine)


async def tasks_of(builder: TaskBuilder, candidates: Sequence[Candidate]) -> list[TaskSpec]:
    """First draft of each candidate that becomes a task with all controls green. Raises SandboxError."""
    waiting = list(candidates)
    while waiting:
        tried = [(candidate, draft) for candidate in waiting if (draft := _next(builder, candidate)) is not None]
        runs = await screen(builder, [draft for _, draft in tried])
        good: list[tuple[Candidate, Draft, TestRun]] = []
        for (candidate, draft), run in zip(tried, runs, strict=True):
            judged = judge(run, draft.expected)
            if not isinstance(judged, Rejected) and draft.shown and not set(judged[0]) & set(draft.shown):
                judged = Rejected(Reason.NEAR)
            if not isinstance(judged, Rejected) and builder.hopeless(judged[0]):
                judged = Rejected(Reason.CONTROLS)
            if isinstance(judged, Rejected):
                builder.found.reject(draft.operator, judged)
            else:
                good.append((candidate, draft, run))
        for turn in range(1, builder.k):
            good = await _again(builder, good, turn)
        await asyncio.gather(*(_finish(builder, *one) for one in good))
        waiting = [candidate for candidate, _ in tried if candidate.made is None]
    return [candidate.made for candidate in candidates if candidate.made is not None]


def _next(builder: TaskBuilder, candidate: Candidate) -> Draft | None:
    for draft in candidate.drafts:
        if isinstance(draft, Draft):
            return draft
        builder.found.reject("", draft)
    return None


async def _again(
    builder: TaskBuilder, good: Sequence[tuple[Candidate, Draft, TestRun]], turn: int
) -> list[tuple[Candidate, Draft, TestRun]]:
    """Drafts whose tests give the same result in another sandbox, where each follows different drafts."""
    turned = [*good[turn % max(1, len(good)) :], *good[: turn % max(1, len(good))]]
    same = []
    for one, run in zip(turned, await screen(builder, [draft for _, draft, _ in turned]), strict=True):
        _, draft, before = one
        if judge(run, draft.expected) == judge(before, draft.expected):
            same.append(one)
        else:
            builder.found.reject(draft.operator, Rejected(Reason.UNSTEADY))
    return sorted(same, key=good.index)


async def _finish(builder: TaskBuilder, candidate: Candidate, draft: Draft, run: TestRun) -> None:
    task = await drafted(builder, draft, candidate.rng, run)
    # Besides the first run, which chose the tests, k - 1 runs in fresh sandboxes have seen them fail.
    made = task if isinstance(task, Rejected) else await controlled(builder, task, noops=builder.k - 1)
    if isinstance(made, Rejected):
        builder.found.reject(draft.operator, made)
    else:
        builder.found.keep(draft.operator)
        candidate.made = made
