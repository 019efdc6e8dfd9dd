"""jest and vitest: their JSON results, which have one form."""

from __future__ import annotations

import json
import shlex
from typing import Any

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    MAX_TESTS,
    Case,
    Invocation,
    Order,
    TestRun,
    number_of,
    processor_seconds,
    started,
    text_of,
)
from sandbox.grading.adapters.node import NODE_CONFIGURATION
from sandbox.grading.report import CaseStatus

STATUS: dict[object, CaseStatus] = {
    "passed": "passed", "failed": "failed", "pending": "skipped", "skipped": "skipped", "todo": "skipped",
    "disabled": "skipped",
}  # fmt: skip


class JestAdapter:
    """Ids are `<path>::<describe>::<title>`."""

    name = "jest"
    configuration = NODE_CONFIGURATION
    command = "node_modules/.bin/jest --ci --runInBand --json --no-cache --no-watchman --reporters= --runTestsByPath"

    def invoke(self, order: Order) -> Invocation:
        words = [*order.arguments, *order.files]
        run = f"{self.command} {self.output} {' '.join(shlex.quote(word) for word in words)}"
        return Invocation(f"ulimit -t {processor_seconds(order)}; cd {WORKDIR} && CI=1 exec {run}")

    output = '--outputFile="/dev/fd/$RESULT_FD"'

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        document = _document(result.result)
        if document is None:
            if result.result:
                run.forged = ("the report is not one JSON object",)
            return run
        files = document.get("testResults")
        for entry in files if isinstance(files, list) else ():
            if isinstance(entry, dict):
                _read_file(entry, order, run)
        run.finished = isinstance(files, list)
        return run


class VitestAdapter(JestAdapter):
    """Ids are `<path>::<describe>::<title>`."""

    name = "vitest"
    command = "node_modules/.bin/vitest run --no-file-parallelism --reporter=json"


def _read_file(entry: dict[str, Any], order: Order, run: TestRun) -> None:
    path = str(entry.get("name")).removeprefix(f"{WORKDIR}/")
    tests = entry.get("assertionResults")
    tests = tests if isinstance(tests, list) else []
    if not tests and entry.get("status") != "passed":
        run.file_errors[path] = text_of(entry.get("message"), order.message_chars) or "the file could not be run"
    for test in tests:
        if not isinstance(test, dict) or len(run.cases) > MAX_TESTS:
            continue
        ancestors = test.get("ancestorTitles")
        titles = [str(title) for title in (ancestors if isinstance(ancestors, list) else []) if title]
        test_id = "::".join([path, *titles, str(test.get("title"))])
        messages = test.get("failureMessages")
        message = "\n".join(map(str, messages)) if isinstance(messages, list) else ""
        status = STATUS.get(test.get("status"), "error") if isinstance(test.get("status"), str) else "error"
        seconds = number_of(test.get("duration")) / 1000.0
        known = Case("error", "reported twice") if test_id in run.cases else None
        run.cases[test_id] = known or Case(status, message[: order.message_chars], seconds)


def _document(data: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
