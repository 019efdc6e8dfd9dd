"""The one table of how an attempt, or a whole group, can end: cause x verdict x retry x fault.

Grader, rollout loop, group buffer, circuit breaker and pages all use it. A cause is set where it occurs and carried as this
enum; nothing infers it from the text of an error. Three outcomes: `passed` and `failed` are verdicts on the work;
`infra_error` is missing data, shown and counted, and never becomes a reward. Whatever the work itself caused is a verdict,
however it made the tests or its episode end.
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
    ADAPTIVE = "adaptive"
    REPORT_UNREADABLE = "report_unreadable"
    SANDBOX_BROKEN_BY_WORK = "sandbox_broken_by_work"
    PATCH_REFUSED = "patch_refused"
    OVERTIME = "overtime"
    UNSTORABLE = "unstorable"
    # The work was not judged.
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    ENVIRONMENT_MISSING = "environment_missing"
    TASK_INVALID = "task_invalid"
    HOST_FAILED = "host_failed"
    DISK_FULL = "disk_full"
    WORKER_LOST = "worker_lost"
    INTERNAL_ERROR = "internal_error"
    ENGINE_FAILED = "engine_failed"
    ENGINE_CONTEXT = "engine_context"
    INVALID_ENGINE_RESPONSE = "invalid_engine_response"
    POLICY_UNUSABLE = "policy_unusable"
    TOOL_FAILED = "tool_failed"
    EPISODE_STUCK = "episode_stuck"
    REWARD_FAILED = "reward_failed"
    STORE_FAILED = "store_failed"
    NOT_FINITE = "not_finite"
    TOO_STALE = "too_stale"
    TOO_LARGE = "too_large"
    DATA_LOST = "data_lost"
    GROUP_DEADLINE = "group_deadline"
    SNAPSHOT_MISSING = "snapshot_missing"
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"


class Fault(StrEnum):
    """Whose doing an outcome is."""

    POLICY = "policy"
    TASK = "task"
    INSTALLATION = "installation"  # the circuit breaker counts these
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict
    retry: bool
    """Whether the same attempt may be run again (up to the run's `infra_retries`)."""
    grade: bool
    """Whether the attempt has a reward."""
    meaning: str
    fault: Fault


def _judged(verdict: Verdict, meaning: str) -> Outcome:
    return Outcome(verdict, retry=False, grade=True, meaning=meaning, fault=Fault.POLICY)


def _lost(meaning: str, *, retry: bool, fault: Fault = Fault.INSTALLATION) -> Outcome:
    return Outcome(Verdict.INFRA_ERROR, retry=retry, grade=False, meaning=meaning, fault=fault)


OUTCOMES: dict[Cause, Outcome] = {
    Cause.ALL_PASSED: _judged(Verdict.PASSED, "every expected test ran and passed, and every canary failed"),
    Cause.TESTS_FAILED: _judged(Verdict.FAILED, "an expected test failed or could not be set up"),
    Cause.TESTS_SKIPPED: _judged(Verdict.FAILED, "an expected test was skipped or marked as expected to fail"),
    Cause.TESTS_MISSING: _judged(Verdict.FAILED, "an expected test did not run or the run was cut short"),
    Cause.NO_TEST_RAN: _judged(Verdict.FAILED, "nothing was reported at all"),
    Cause.TIME_OUT: _judged(Verdict.FAILED, "the tests did not end within the task's time"),
    Cause.OUT_OF_MEMORY: _judged(Verdict.FAILED, "the tests did not end within the sandbox's memory"),
    Cause.TAMPERED: _judged(Verdict.FAILED, "a canary did not fail, or the report holds what the runner did not write"),
    Cause.ADAPTIVE: _judged(
        Verdict.FAILED, "the work computes something else beside the hidden assertions than without them"
    ),
    Cause.REPORT_UNREADABLE: _judged(Verdict.FAILED, "the report of the tests cannot be read"),
    Cause.SANDBOX_BROKEN_BY_WORK: _judged(
        Verdict.FAILED, "the sandbox was lost twice under this work and held without it"
    ),
    Cause.PATCH_REFUSED: _judged(Verdict.FAILED, "a patch is not a plain text change of the checkout"),
    Cause.OVERTIME: _judged(
        Verdict.FAILED, "the policy's own calls used up the episode's time and left nothing to grade"
    ),
    Cause.UNSTORABLE: _judged(Verdict.FAILED, "the rollout holds what cannot be stored"),
    Cause.SANDBOX_LOST: _lost("a sandbox died or broke its protocol", retry=True),
    Cause.SANDBOX_UNAVAILABLE: _lost("this machine cannot give the sandbox that was asked for", retry=False),
    Cause.ENVIRONMENT_MISSING: _lost("the built environment is not in this store", retry=False),
    Cause.TASK_INVALID: _lost(
        "the bundle cannot be used: unreadable, changed, or its controls fail", retry=False, fault=Fault.TASK
    ),
    Cause.HOST_FAILED: _lost("the host failed at a file or a socket", retry=True),
    Cause.DISK_FULL: _lost("the host's disk is full", retry=False),
    Cause.WORKER_LOST: _lost("the worker that played it died or lost its lease", retry=True),
    Cause.INTERNAL_ERROR: _lost("this program raised an error that nothing expects", retry=True),
    Cause.ENGINE_FAILED: _lost("the inference engine failed, refused or aborted a request", retry=True),
    Cause.ENGINE_CONTEXT: _lost(
        "a context left the policy no room: the engine's is shorter than the run's, or the run's is filled by the opening prompt",
        retry=False,
    ),
    Cause.INVALID_ENGINE_RESPONSE: _lost(
        "the engine's answer contradicts itself or the versions that were published", retry=True
    ),
    Cause.POLICY_UNUSABLE: _lost("the policy's chat template or endpoint cannot drive an episode", retry=False),
    Cause.TOOL_FAILED: _lost("a tool of the harness failed for reasons of its own", retry=True),
    Cause.EPISODE_STUCK: _lost("waiting for the engine and for a sandbox used up `engine_seconds`", retry=True),
    Cause.REWARD_FAILED: _lost("a reward part raised: the work is judged but not priced", retry=False),
    Cause.STORE_FAILED: _lost("the store did not take a finished rollout at any try", retry=False),
    Cause.NOT_FINITE: _lost("a finished group holds NaN or infinity", retry=True),
    Cause.TOO_STALE: _lost("a finished group's oldest tokens lag more than the run allows", retry=True),
    Cause.TOO_LARGE: _lost("a finished group is larger than what can be stored and read back", retry=False),
    Cause.DATA_LOST: _lost("the stored training data of a finished group is gone or damaged", retry=False),
    Cause.GROUP_DEADLINE: _lost("one try of the group took longer than its deadline", retry=True),
    Cause.SNAPSHOT_MISSING: _lost("the recorded rollout cannot be continued", retry=False, fault=Fault.PERSON),
    Cause.QUARANTINED: _lost(
        "too few rollouts of the group are left beside the quarantine", retry=False, fault=Fault.POLICY
    ),
    Cause.CANCELLED: _lost(
        "its run or evaluation ended, or it was cut as a straggler", retry=False, fault=Fault.PERSON
    ),
}


UNRECORDED = "unrecorded"
"""Name in metrics for groups that were dropped before causes were kept as an enum."""


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt or a group that gave no data: the cause that counts, and the text that people read."""

    outcome: Cause
    message: str

    def __str__(self) -> str:
        return self.message


def is_ours(outcome: str) -> bool:
    """Whether a stored cause is a fault of the installation, which the circuit breaker counts. Causes that this version does
    not know, and groups stored without one, are: nobody has shown that a task or a person is behind them."""
    try:
        return OUTCOMES[Cause(outcome)].fault is Fault.INSTALLATION
    except ValueError:
        return True


def table() -> str:
    """The table as Markdown, as it stands in docs/sandbox/grading.md."""
    rows = ["| Cause | Verdict | Retry | Grade | Meaning |", "|---|---|---|---|---|"]
    for cause, outcome in OUTCOMES.items():
        retry, grade = ("yes" if value else "no" for value in (outcome.retry, outcome.grade))
        rows.append(f"| `{cause}` | `{outcome.verdict}` | {retry} | {grade} | {outcome.meaning} |")
    return "\n".join(rows)
