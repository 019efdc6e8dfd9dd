"""The light verifier: hidden calls of one function.

A small program in the clean sandbox imports the module, makes the calls and returns the `repr` of each result on the
private descriptor. The expected values stay outside, so there is nothing inside that could be forged or read: a
program that writes the right results by any means has solved the task.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sandbox.backends.base import EndReason, ExecResult, Sandbox
from sandbox.grading.adapters.base import CPU_EXIT_CODES
from sandbox.grading.findings import Rule, finding
from sandbox.grading.judging import Judgement, judge_cases
from sandbox.grading.report import CaseResult
from sandbox.tasks.spec import CallsVerifier

RUNNER = (Path(__file__).parent / "runners" / "calls.py").read_text(encoding="utf-8")
MESSAGE_CHARS = 500
RESULT_CHARS = 100_000
"""Longest `repr` that is compared; the runner cuts longer ones, and they fail."""


async def run_calls(sandbox: Sandbox, verifier: CallsVerifier) -> Judgement:
    """Make the hidden calls in `sandbox`, whose checkout holds the work. Raises SandboxError."""
    seconds = max(1, math.ceil(verifier.timeout_seconds))
    arguments = [case[0] for case in verifier.cases]
    request = repr((verifier.module, verifier.function, arguments, RESULT_CHARS)).encode()
    # Processor time is what the code under test may use; wall time is only the net behind it (busy machines).
    command = f"ulimit -t {seconds}; exec python3 -I -S -B -X utf8 -c {shlex.quote(RUNNER)}"
    outcome = await sandbox.exec(
        command, stdin=request, timeout=5.0 * seconds + 20.0, private_result=True, keep_state=False
    )
    return judge(verifier.cases, outcome)


def judge(cases: Sequence[tuple[str, str]], outcome: ExecResult) -> Judgement:
    """A result for each case from what came back, and one cause."""
    starved = outcome.ended is EndReason.MEMORY
    judged = judge_cases(compare(cases, outcome), out_of_memory=starved)
    if any(case.status == "missing" for case in judged.cases) and not (starved or ran_out_of_time(outcome)):
        return replace(judged, findings=(finding(Rule.RUN_CUT_SHORT, _end_of(outcome)),))
    return judged


def compare(cases: Sequence[tuple[str, str]], outcome: ExecResult) -> tuple[CaseResult, ...]:
    """Compare what came back with what is expected, case by case."""
    records = parse_records(outcome.result)
    results: list[CaseResult] = []
    for index, (_, expected) in enumerate(cases):
        case_id = f"case-{index:03d}"
        record = records.get(index)
        if record is None:
            results.append(CaseResult(id=case_id, status="missing", message=_end_of(outcome)))
        elif record[0] == "E":
            results.append(CaseResult(id=case_id, status="error", message=record[1][:MESSAGE_CHARS]))
        elif record[1] == expected:
            results.append(CaseResult(id=case_id, status="passed"))
        else:
            message = f"got {record[1][:200]}, expected {expected[:200]}"
            results.append(CaseResult(id=case_id, status="failed", message=message))
    first_missing = next((i for i, case in enumerate(results) if case.status == "missing"), None)
    if first_missing is not None and ran_out_of_time(outcome):
        late = results[first_missing]
        results[first_missing] = late.model_copy(update={"status": "timeout", "message": "did not end in time"})
    return tuple(results)


def ran_out_of_time(outcome: ExecResult) -> bool:
    return outcome.ended is EndReason.TIMEOUT or outcome.exit_code in CPU_EXIT_CODES


def _end_of(outcome: ExecResult) -> str:
    """How the run ended, with the end of what it printed, for people."""
    how = f"the run ended early ({outcome.ended}, exit code {outcome.exit_code})"
    said = outcome.output.decode("utf-8", "replace").strip()
    return f"{how}: {said[-300:]}" if said else how


def parse_records(data: bytes) -> dict[int, tuple[str, str]]:
    """Records `<index> <R|E> <length>\\n<length bytes of text>` → index: (kind, text).

    What does not parse ends the reading; of several records of a case the first one counts.
    """
    records: dict[int, tuple[str, str]] = {}
    position = 0
    while (end := data.find(b"\n", position, position + 40)) != -1:
        fields = data[position:end].split(b" ")
        if len(fields) != 3 or fields[1] not in (b"R", b"E") or not (fields[0].isdigit() and fields[2].isdigit()):
            break
        start, length = end + 1, int(fields[2])
        if start + length > len(data):
            break
        text = data[start : start + length].decode("utf-8", "replace")
        records.setdefault(int(fields[0]), (fields[1].decode(), text))
        position = start + length
    return records
