"""unittest: one report for each test method, of the requested files only."""

from __future__ import annotations

import json
import secrets
import shlex
from pathlib import Path

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
    (RUNNERS / name).read_text(encoding="utf-8") for name in ("encoding.py", "observing.py", "unittest_report.py")
)


class UnittestAdapter:
    """Ids are `<path>::<Class>::<method>`."""

    name = "unittest"
    in_memory: tuple[str, ...] = (".py",)
    configuration = frozenset({"setup.cfg", "tox.ini", "pyproject.toml"})

    def invoke(self, order: Order) -> Invocation:
        word = secrets.token_hex(8)
        request = {
            "word": word,
            "ids": None if order.ids is None else list(order.ids),
            "files": list(order.files),
            "message_chars": order.message_chars,
            "source_roots": list(order.source_roots),
            "preload": list(order.preload),
            "rewritten": bool(order.indexed) and not order.modules,
        }
        stdin = f"{json.dumps(request)}\n{json.dumps(dict(order.modules))}\n"
        run = f"PYTHONHASHSEED=0 exec {order.python} -P -s -B -c {shlex.quote(RUNNER)}"
        command = f"ulimit -t {processor_seconds(order)}; cd {WORKDIR} && {run}"
        return Invocation(command, stdin.encode(), secret=word)

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        forged = Forged()
        for line, record in json_lines(result.result, invocation.secret.encode()):
            if record is None or len(run.cases) > MAX_TESTS:
                forged.add("not a record of the runner", line)
                continue
            test_id, message = str(record.get("id")), text_of(record.get("message"), order.message_chars)
            if record.get("kind") == "done":
                run.finished = True
            elif record.get("kind") == "file":
                run.file_errors[test_id] = message
            elif record.get("kind") == "seen":
                if not read_hit(run, record):
                    forged.add("not a report of an assertion", line)
            elif test_id in run.cases:
                forged.add("reported twice", test_id)
                run.cases[test_id] = Case("error", "reported twice")
            else:
                run.cases[test_id] = _case(record.get("status"), message, number_of(record.get("seconds")))
        if run.finished and result.exit_code != 0:
            forged.add("the runner ended, and the exit code is", str(result.exit_code))
        run.forged = tuple(forged.lines)
        return run


def _case(status: object, message: str, seconds: float) -> Case:
    if status == "passed" or status == "failed" or status == "skipped":
        return Case(status, message, seconds)
    return Case("error", message or f"status {status!r}"[:200], seconds)
