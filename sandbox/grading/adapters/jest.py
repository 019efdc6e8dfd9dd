"""jest and vitest: their JSON results, which have one form."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    MAX_RECORDS,
    MAX_TESTS,
    Case,
    CaseStatus,
    Invocation,
    Order,
    TestRun,
    json_lines,
    number_of,
    processor_seconds,
    read_site,
    started,
    text_of,
)
from sandbox.grading.adapters.node import NODE_CONFIGURATION, OBSERVED
from sandbox.storable import JSONRefused, parse_json

STATUS: dict[object, CaseStatus] = {
    "passed": "passed", "failed": "failed", "pending": "skipped", "skipped": "skipped", "todo": "skipped",
    "disabled": "skipped",
}  # fmt: skip
MAX_PARTS = 2_000_000
"""Objects and lists of one document, each of which takes about 100 bytes of memory here."""


class JestAdapter:
    """Ids are `<path>::<describe>::<title>`."""

    name = "jest"
    in_memory: tuple[str, ...] = ()
    configuration = NODE_CONFIGURATION
    command = "node_modules/.bin/jest --ci --runInBand --json --no-cache --no-watchman --runTestsByPath"

    def invoke(self, order: Order) -> Invocation:
        words = [*order.arguments, *order.files]
        run = f"{self.command} {self.output} {' '.join(shlex.quote(word) for word in words)}"
        return Invocation(
            f'ulimit -t {processor_seconds(order)}; cd {WORKDIR} && CI=1 OBSERVED_TO="/proc/$$/fd/$RESULT_FD" exec {run}'
        )

    output = '--outputFile="/dev/fd/$RESULT_FD"'

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        seen, rest = split_observed(result.result)
        for record in seen:
            read_site(run, order, record)
        document = _document(rest)
        if document is None:
            if rest:
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


def split_observed(data: bytes) -> tuple[Iterator[dict[str, Any]], bytes]:
    """Reports of observed assertions, each a line of its own, and the document that follows them."""
    mine: list[bytes] = []
    rest: list[bytes] = []
    position = 0
    while position < len(data) and len(mine) < MAX_RECORDS:
        if data.startswith(OBSERVED, position):
            end = data.find(b"\n", position)
            mine.append(data[position + 1 : end if end >= 0 else len(data)])
        else:
            end = data.find(b"\n" + OBSERVED, position)
            rest.append(data[position : end if end >= 0 else len(data)])
        position = end + 1 if end >= 0 else len(data)
    rest.append(data[position:])
    records = (record for _, record in json_lines(b"\n".join(mine)) if record is not None)
    return records, b"\n".join(filter(None, rest))


def _document(data: bytes) -> dict[str, Any] | None:
    if data.count(b"{") + data.count(b"[") > MAX_PARTS:
        return None
    try:
        document = parse_json(data, max_chars=len(data))
    except JSONRefused:
        return None
    return document if isinstance(document, dict) else None
