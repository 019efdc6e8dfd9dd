"""pytest: one report for each phase of each test, in a run that repository files cannot reconfigure."""

from __future__ import annotations

import json
import secrets
import shlex
from pathlib import Path
from typing import Any

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    MAX_TESTS,
    Case,
    Forged,
    Invocation,
    Order,
    TestRun,
    json_lines,
    number_of,
    processor_seconds,
    read_hit,
    started,
    text_of,
)

RUNNERS = Path(__file__).parents[1] / "runners"
RUNNER = "".join(
    (RUNNERS / name).read_text(encoding="utf-8") for name in ("encoding.py", "observing.py", "pytest_report.py")
)
HARDENED = ("-c", "/dev/null", f"--rootdir={WORKDIR}", "--import-mode=importlib", "-p", "no:cacheprovider", "-q",
            "--no-header", "--no-summary", "--tb=short")  # fmt: skip
ENVIRONMENT = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONHASHSEED=0"
PHASES = ("setup", "call", "teardown")
MAX_CALLS = 100_000


class PytestAdapter:
    name = "pytest"
    in_memory: tuple[str, ...] = (".py",)
    configuration = frozenset(
        {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg",
         "pyproject.toml", ".coveragerc"}
    )  # fmt: skip

    def invoke(self, order: Order) -> Invocation:
        word = secrets.token_hex(8)
        options = [*HARDENED, *(() if order.conftest else ("--noconftest",)), *order.arguments, *order.files]
        request = {
            "word": word,
            "ids": None if order.ids is None else list(order.ids),
            "args": options,
            "message_chars": order.message_chars,
            "source_roots": list(order.source_roots),
            "cover": order.cover,
            "budget": order.budget if order.ids is None else 0.0,
            "preload": list(order.preload),
            "rewritten": bool(order.indexed) and not order.modules,
            "indexed": order.indexed,
        }
        stdin = f"{json.dumps(request)}\n{json.dumps(dict(order.modules))}\n"
        run = f"{ENVIRONMENT} exec {order.python} -P -s -B -c {shlex.quote(RUNNER)}"
        command = f"ulimit -t {processor_seconds(order)}; cd {WORKDIR} && {run}"
        return Invocation(command, stdin.encode(), secret=word)

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        """Lines without the secret word and second reports of a phase count against the run."""
        run = started(result)
        phases: dict[str, dict[str, dict[str, Any]]] = {}
        twice: set[str] = set()
        forged = Forged()
        for line, record in json_lines(result.result, invocation.secret.encode()):
            if record is None or len(phases) > MAX_TESTS:
                forged.add("not a record of the runner", line)
                continue
            test_id, kind = str(record.get("id")), record.get("kind")
            if kind == "done":
                run.finished = True
                if record.get("status") != result.exit_code:
                    forged.add(f"exit code {result.exit_code}, and reported", repr(record.get("status")))
            elif kind == "sampled":
                run.left_out = int(number_of(record.get("left_out")))
            elif kind == "seen":
                if not read_hit(run, record):
                    forged.add("not a report of an assertion", line)
            elif kind == "name":
                run.given[str(record.get("given"))] = test_id
            elif kind == "calls":
                run.calls[test_id] = _calls(record.get("calls"))
            elif kind == "file":
                run.file_errors[test_id] = text_of(record.get("message"), order.message_chars)
            elif kind == "test" and (when := str(record.get("when"))) not in phases.setdefault(test_id, {}):
                phases[test_id][when] = record
            else:
                twice.add(test_id)
                forged.add("reported twice", test_id)
        for test_id, by_phase in phases.items():
            run.cases[test_id] = Case("error", "reported twice") if test_id in twice else _case(by_phase, order)
        run.forged = tuple(forged.lines)
        return run


def _case(phases: dict[str, dict[str, Any]], order: Order) -> Case:
    """A test's status from its phases: passed only if set-up, call and tear-down all passed."""
    seconds = sum(number_of(record.get("seconds")) for record in phases.values())
    for when in PHASES:
        record = phases.get(when)
        if record is None:
            return Case("missing", "the run ended inside this test", seconds)
        message = text_of(record.get("message"), order.message_chars)
        if record.get("outcome") in ("skipped", "xfail"):
            return Case("skipped", message, seconds)
        if record.get("outcome") != "passed":
            return Case("failed" if when == "call" else "error", message, seconds)
    return Case("passed", "", seconds)


def _calls(value: object) -> frozenset[tuple[str, int]]:
    if not isinstance(value, list):
        return frozenset()
    pairs = [pair for pair in value[:MAX_CALLS] if isinstance(pair, list) and len(pair) == 2]
    return frozenset((path, line) for path, line in pairs if isinstance(path, str) and isinstance(line, int))
