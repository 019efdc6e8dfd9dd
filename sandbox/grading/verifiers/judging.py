"""Turn a run's report into a result for each expected test and one cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandbox.grading.adapters.base import Case, TestRun
from sandbox.grading.canaries.insertion import PreparedSuite
from sandbox.grading.verdict.findings import ReportFinding, Rule, finding
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import CaseResult

MESSAGE_CHARS = 500
NOT_PASSED_WORD = {"missing": "did not run", "timeout": "ran out of time", "skipped": "were skipped"}


@dataclass(frozen=True, slots=True)
class Judgement:
    cases: tuple[CaseResult, ...]
    outcome: Cause
    cause: str
    """One line for people; empty when everything passed."""
    canaries: int = 0
    findings: tuple[ReportFinding, ...] = ()


def judge_cases(cases: tuple[CaseResult, ...], *, out_of_memory: bool = False) -> Judgement:
    """By the statuses alone: for verifiers whose expected values never enter the sandbox."""
    statuses = {case.status for case in cases}
    if not cases or statuses == {"missing"}:
        outcome = Cause.OUT_OF_MEMORY if out_of_memory else Cause.NO_TEST_RAN
    elif statuses == {"passed"}:
        outcome = Cause.ALL_PASSED
    elif "timeout" in statuses:
        outcome = Cause.TIME_OUT
    elif out_of_memory:
        outcome = Cause.OUT_OF_MEMORY
    elif statuses & {"failed", "error"}:
        outcome = Cause.TESTS_FAILED
    else:
        outcome = Cause.TESTS_MISSING if "missing" in statuses else Cause.TESTS_SKIPPED
    return Judgement(cases, outcome, summarise(cases))


def judge_run(expected: Sequence[str], prepared: PreparedSuite, run: TestRun) -> Judgement:
    """A result for each expected id. A run that did not come to its end, or that a canary passes, passes nothing."""
    if run.unreadable:
        return Judgement(
            tuple(CaseResult(id=test_id, status="error", message=run.unreadable) for test_id in expected),
            Cause.REPORT_UNREADABLE,
            run.unreadable,
            len(prepared.must_fail),
            (finding(Rule.FORGED_REPORT, run.unreadable),),
        )
    cases = tuple(_case(test_id, prepared.ids[test_id], run) for test_id in expected)
    judged = judge_cases(cases, out_of_memory=run.out_of_memory)
    noticed = list(_noticed(cases, run))
    wrong = {canary: run.status(canary) for canary in sorted(prepared.must_fail) if run.status(canary) != "failed"}
    tampered = ""
    # Wrong work may meet a wrong expectation by chance, right work cannot: each canary contradicts a test that passed.
    if judged.outcome is Cause.ALL_PASSED and wrong:
        tampered = f"{len(wrong)} of {len(prepared.must_fail)} tests that must fail did not"
    elif judged.outcome is Cause.ALL_PASSED and run.forged:
        tampered = f"the report holds what the runner did not write ({run.forged[0]})"
    everything = len(wrong) > 1 and set(wrong) == prepared.must_fail and set(wrong.values()) == {"passed"}
    if everything and not tampered and judged.outcome is Cause.TESTS_FAILED:
        tampered = f"all {len(wrong)} tests that must fail passed"
    if wrong and (tampered or everything):
        noticed.append(
            finding(Rule.CANARY_PASSED, f"{len(wrong)} of {len(prepared.must_fail)}: {', '.join(wrong.values())}")
        )
    outcome, cause = (Cause.TAMPERED, tampered) if tampered else (judged.outcome, judged.cause)
    return Judgement(cases, outcome, cause, len(prepared.must_fail), tuple(noticed))


def judge_both(expected: Sequence[str], runs: Sequence[Judgement]) -> Judgement:
    """Of tests that ran apart: each has to pass in every run that it was in, and no run may be tampered with."""
    known: dict[str, CaseResult] = {}
    for case in (case for run in runs for case in run.cases):
        if case.id not in known or known[case.id].status == "passed":
            known[case.id] = case
    cases = tuple(known.get(name, CaseResult(id=name, status="missing", message="did not run")) for name in expected)
    worst = next((run for run in runs if run.outcome in (Cause.REPORT_UNREADABLE, Cause.TAMPERED)), None)
    out_of_memory = any(run.outcome is Cause.OUT_OF_MEMORY for run in runs)
    judged = judge_cases(cases, out_of_memory=out_of_memory)
    outcome, cause = (judged.outcome, judged.cause) if worst is None else (worst.outcome, worst.cause)
    findings = tuple(dict.fromkeys(found for run in runs for found in run.findings))
    return Judgement(cases, outcome, cause, sum(run.canaries for run in runs), findings)


def judge_difference(judgement: Judgement, adapted: Sequence[str]) -> Judgement:
    """`judgement` of work that passed, failed where it adapts to the assertions beside it."""
    if not adapted:
        return judgement
    cause = f"{len(adapted)} tests compute something else without their assertions"
    noticed = finding(Rule.ADAPTIVE, ", ".join(adapted))
    return replace(judgement, outcome=Cause.ADAPTIVE, cause=cause, findings=(*judgement.findings, noticed))


def judge_compiled(judgement: Judgement, files: Sequence[str]) -> Judgement:
    """`judgement` of work that passed, failed where its product is compiled from files of the hidden tests."""
    if not files or judgement.outcome is not Cause.ALL_PASSED:
        return judgement
    noticed = finding(Rule.ADAPTIVE, f"compiled into the product: {', '.join(files)}")
    cause = f"{len(files)} files of the hidden tests are compiled into the product"
    return replace(judgement, outcome=Cause.ADAPTIVE, cause=cause, findings=(*judgement.findings, noticed))


def _case(test_id: str, ran_as: str, run: TestRun) -> CaseResult:
    case = run.cases.get(ran_as, Case("missing"))
    status, message = case.status, case.message
    if status == "missing":
        file_error = run.file_errors.get(ran_as.split("::", 1)[0])
        status = "error" if file_error else "timeout" if run.timed_out else "missing"
        message = file_error or message or run.ending
    elif status == "passed" and not run.finished:
        status, message = "error", f"the run did not come to its end: {run.ending}"
    return CaseResult(id=test_id, status=status, message=message[-MESSAGE_CHARS:])


def _noticed(cases: Sequence[CaseResult], run: TestRun) -> Sequence[ReportFinding]:
    found = []
    if run.forged:
        found.append(finding(Rule.FORGED_REPORT, "; ".join(run.forged)))
    if not (run.finished or run.timed_out or run.out_of_memory or run.file_errors):
        found.append(finding(Rule.RUN_CUT_SHORT, run.ending))
    if skipped := [case.id for case in cases if case.status == "skipped"]:
        found.append(finding(Rule.TEST_SKIPPED, ", ".join(skipped)))
    return found


def summarise(cases: tuple[CaseResult, ...]) -> str:
    """Why it is not passed, in one line; empty when it is."""
    if not cases:
        return "no test ran"
    bad = [case for case in cases if case.status != "passed"]
    if not bad:
        return ""
    words = [f"{len(bad)} of {len(cases)} cases failed"]
    for status, word in NOT_PASSED_WORD.items():
        count = sum(case.status == status for case in bad)
        if count:
            words.append(f"{count} {word}")
    return ", ".join(words)
