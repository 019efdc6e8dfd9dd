"""The pytest verifier: exact test ids, in a run that repository files cannot reconfigure.

The run reports over the private descriptor, one record for each phase of each test; the verdict is computed from
these outside. Skipped, missing, expected-to-fail and never-finished all count as not passed.
"""

from __future__ import annotations

import json
import math
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.backends.base import WORKDIR, EndReason, ExecResult, Sandbox
from sandbox.grading.calls import CPU_EXIT_CODES
from sandbox.grading.report import CaseResult, CaseStatus
from sandbox.tasks.spec import PytestVerifier

RUNNER = (Path(__file__).parent / "runners" / "pytest_report.py").read_text(encoding="utf-8")
MESSAGE_CHARS = 400
HARDENED = ("-c", "/dev/null", f"--rootdir={WORKDIR}", "--import-mode=importlib", "-p", "no:cacheprovider", "-q",
            "--no-header", "--no-summary", "--tb=short")  # fmt: skip


@dataclass(slots=True)
class PytestOutcome:
    """What a run reported. `tests` maps an id to (status, message, seconds)."""

    tests: dict[str, tuple[CaseStatus, str, float]] = field(default_factory=dict)
    collect_errors: dict[str, str] = field(default_factory=dict)
    calls: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    """With `cover`: test id → (path below the checkout, first line) of each function that the test entered."""
    finished: bool = False
    """Whether pytest came to its end, so that nothing after the last test can be hidden."""
    timed_out: bool = False
    ending: str = ""
    """How the process ended and the last it printed, for people."""


async def run_pytest(sandbox: Sandbox, verifier: PytestVerifier, *, python: str) -> tuple[CaseResult, ...]:
    """Run the expected tests in `sandbox`, whose checkout holds the work and the hidden files. Raises SandboxError."""
    expected = (*verifier.fail_to_pass, *verifier.pass_to_pass)
    outcome = await collect_outcome(
        sandbox,
        files=sorted({test_id.split("::", 1)[0] for test_id in expected}),
        ids=expected,
        python=python,
        extra=verifier.pytest_args,
        conftest=any(path.rpartition("/")[2] == "conftest.py" for path in verifier.test_files),
        seconds=verifier.timeout_seconds,
    )
    return judge(expected, outcome)


async def collect_outcome(
    sandbox: Sandbox,
    *,
    files: Sequence[str],
    ids: Sequence[str] | None,
    python: str,
    extra: Sequence[str] = (),
    conftest: bool = False,
    seconds: float,
    source_roots: Sequence[str] = (),
    message_chars: int = MESSAGE_CHARS,
    cover: bool = False,
) -> PytestOutcome:
    """Run the tests of `files` (only `ids` of them when given) and read what the run reports. Raises SandboxError.

    `seconds` bounds processor time; wall time, which a busy machine stretches, by ten times as much and a minute.
    """
    word = secrets.token_hex(8)
    args = [*HARDENED, *(() if conftest else ("--noconftest",)), *extra, *files]
    request = {
        "word": word,
        "ids": None if ids is None else list(ids),
        "args": args,
        "message_chars": message_chars,
        "source_roots": list(source_roots),
        "cover": cover,
    }
    limit = max(1, math.ceil(seconds))
    environment = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONHASHSEED=0"
    command = f"ulimit -t {limit}; cd {WORKDIR} && {environment} exec {python} -P -s -B -c {shlex.quote(RUNNER)}"
    result = await sandbox.exec(
        command, stdin=json.dumps(request).encode(), timeout=10.0 * limit + 60.0, private_result=True, keep_state=False
    )
    return parse(word, result)


def parse(word: str, result: ExecResult) -> PytestOutcome:
    """Read the records of a run. Lines without the secret word, and repeated phases of a test, make it fail."""
    said = result.output.decode("utf-8", "replace").strip()[-300:]
    outcome = PytestOutcome(
        timed_out=result.ended is EndReason.TIMEOUT or result.exit_code in CPU_EXIT_CODES,
        ending=f"{result.ended}, exit code {result.exit_code}: {said}",
    )
    phases: dict[str, dict[str, dict[str, Any]]] = {}
    forged: set[str] = set()
    for line in result.result.split(b"\n"):
        record = _record(word.encode(), line)
        if record is None:
            continue
        kind, body = record
        if kind == "D":
            outcome.finished = True
        elif kind == "F":
            outcome.calls[str(body.get("id"))] = frozenset((str(path), int(line)) for path, line in body["calls"])
        elif kind == "C":
            outcome.collect_errors[str(body.get("id"))] = str(body.get("message"))
        elif body.get("when") in phases.setdefault(str(body.get("id")), {}):
            forged.add(str(body.get("id")))
        else:
            phases[str(body.get("id"))][str(body.get("when"))] = body
    for test_id, by_phase in phases.items():
        outcome.tests[test_id] = ("error", "reported twice", 0.0) if test_id in forged else _status(by_phase)
    return outcome


def _record(word: bytes, line: bytes) -> tuple[str, dict[str, Any]] | None:
    if not line.startswith(word) or len(line) <= len(word):
        return None
    try:
        body = json.loads(line[len(word) + 1 :])
    except (ValueError, RecursionError):
        return None
    return (line[len(word) : len(word) + 1].decode("ascii", "replace"), body) if isinstance(body, dict) else None


def _status(phases: dict[str, dict[str, Any]]) -> tuple[CaseStatus, str, float]:
    """A test's status from its phases: passed only if set-up, call and tear-down all passed."""
    seconds = sum(float(body.get("seconds") or 0.0) for body in phases.values())
    for when in ("setup", "call", "teardown"):
        body = phases.get(when)
        if body is None:
            return "missing", "the run ended inside this test", seconds
        message = str(body.get("message") or "")
        if body.get("outcome") in ("skipped", "xfail"):
            return "skipped", message, seconds
        if body.get("outcome") != "passed":
            return ("failed" if when == "call" else "error"), message, seconds
    return "passed", "", seconds


def judge(expected: Sequence[str], outcome: PytestOutcome) -> tuple[CaseResult, ...]:
    """A result for each expected id. A run that did not come to its end passes nothing."""
    results = []
    for test_id in expected:
        status, message, _ = outcome.tests.get(test_id, ("missing", "", 0.0))
        if status == "missing":
            file_error = outcome.collect_errors.get(test_id.split("::", 1)[0])
            status = "error" if file_error else "timeout" if outcome.timed_out else "missing"
            message = file_error or message or outcome.ending
        elif status == "passed" and not outcome.finished:
            status, message = "error", f"the run did not come to its end: {outcome.ending}"
        results.append(CaseResult(id=test_id, status=status, message=message[-500:]))
    return tuple(results)
