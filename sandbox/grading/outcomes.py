"""The one table of how an attempt can end: cause x retry x grade.

The grader, the rollout loop and `docs/grading.md` all use it (a test compares the documentation with this file).
Three outcomes: `passed` and `failed` are verdicts on the work; `infra_error` is missing data, shown and counted, and
never becomes a reward. Whatever the work itself caused is a verdict, however it made the tests end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    INFRA_ERROR = "infra_error"


class Cause(StrEnum):
    """Why an attempt ended as it did."""

    # The work was judged.
    ALL_PASSED = "all_passed"
    TESTS_FAILED = "tests_failed"
    TESTS_SKIPPED = "tests_skipped"
    TESTS_MISSING = "tests_missing"
    NO_TEST_RAN = "no_test_ran"
    TIME_OUT = "time_out"
    OUT_OF_MEMORY = "out_of_memory"
    TAMPERED = "tampered"
    SANDBOX_BROKEN_BY_WORK = "sandbox_broken_by_work"
    PATCH_REFUSED = "patch_refused"
    # The work was not judged.
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    ENVIRONMENT_MISSING = "environment_missing"
    TASK_INVALID = "task_invalid"
    HOST_FAILED = "host_failed"
    ENGINE_FAILED = "engine_failed"
    TOOL_FAILED = "tool_failed"
    EPISODE_STUCK = "episode_stuck"
    REWARD_FAILED = "reward_failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict
    retry: bool
    """Whether the same attempt may be run again (up to the run's `infra_retries`)."""
    grade: bool
    """Whether the attempt has a reward."""
    meaning: str


def _judged(verdict: Verdict, meaning: str) -> Outcome:
    return Outcome(verdict, retry=False, grade=True, meaning=meaning)


def _lost(meaning: str, *, retry: bool) -> Outcome:
    return Outcome(Verdict.INFRA_ERROR, retry=retry, grade=False, meaning=meaning)


OUTCOMES: dict[Cause, Outcome] = {
    Cause.ALL_PASSED: _judged(Verdict.PASSED, "every expected test ran and passed, and every canary failed"),
    Cause.TESTS_FAILED: _judged(Verdict.FAILED, "an expected test failed or could not be set up"),
    Cause.TESTS_SKIPPED: _judged(Verdict.FAILED, "an expected test was skipped or marked as expected to fail"),
    Cause.TESTS_MISSING: _judged(Verdict.FAILED, "an expected test did not run or the run was cut short"),
    Cause.NO_TEST_RAN: _judged(Verdict.FAILED, "nothing was reported at all"),
    Cause.TIME_OUT: _judged(Verdict.FAILED, "the tests did not end within the task's time"),
    Cause.OUT_OF_MEMORY: _judged(Verdict.FAILED, "the tests did not end within the sandbox's memory"),
    Cause.TAMPERED: _judged(Verdict.FAILED, "a canary did not fail, or the report holds what the runner did not write"),
    Cause.SANDBOX_BROKEN_BY_WORK: _judged(
        Verdict.FAILED, "the sandbox was lost twice under this work and held without it"
    ),
    Cause.PATCH_REFUSED: _judged(Verdict.FAILED, "a patch from outside is not a plain text change of the checkout"),
    Cause.SANDBOX_LOST: _lost("a sandbox died or broke its protocol", retry=True),
    Cause.SANDBOX_UNAVAILABLE: _lost("this machine cannot give the sandbox that was asked for", retry=False),
    Cause.ENVIRONMENT_MISSING: _lost("the built environment is not in this store", retry=False),
    Cause.TASK_INVALID: _lost("the bundle cannot be used: unreadable, changed, or its oracle fails", retry=False),
    Cause.HOST_FAILED: _lost("the host failed at a file or a socket", retry=True),
    Cause.ENGINE_FAILED: _lost("the inference engine failed or aborted a request", retry=True),
    Cause.TOOL_FAILED: _lost("a tool of the harness failed for reasons of its own", retry=True),
    Cause.EPISODE_STUCK: _lost("engine or sandboxes were too slow or stuck for the whole wall time", retry=True),
    Cause.REWARD_FAILED: _lost("a reward part raised: the work is judged but not priced", retry=False),
    Cause.CANCELLED: _lost("nobody wants the attempt any more", retry=False),
}


def table() -> str:
    """The table as Markdown, as it stands in docs/grading.md."""
    rows = ["| Cause | Verdict | Retry | Grade | Meaning |", "|---|---|---|---|---|"]
    for cause, outcome in OUTCOMES.items():
        retry, grade = ("yes" if value else "no" for value in (outcome.retry, outcome.grade))
        rows.append(f"| `{cause}` | `{outcome.verdict}` | {retry} | {grade} | {outcome.meaning} |")
    return "\n".join(rows)
