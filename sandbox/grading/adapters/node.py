"""`node --test`: a custom reporter, and each test file in its own process.

Test files that come with the order (`Order.modules`) are handed to their processes over a pipe and never lie on disk.
"""

from __future__ import annotations

import base64
import json
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
    read_site,
    started,
    text_of,
)

RUNNERS = Path(__file__).parents[1] / "runners"
REPORTER = (RUNNERS / "node_report.mjs").read_bytes()
MEMORY, BOOT = ((RUNNERS / name).read_text(encoding="utf-8") for name in ("node_memory.mjs", "node_boot.mjs"))
OBSERVED = b"\2"
"""Begins the report of an observed assertion (`runners/observe.js`)."""
REPORTER_URL = f"data:text/javascript;base64,{base64.b64encode(REPORTER).decode()}"
NODE_CONFIGURATION = frozenset(
    {"package.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", ".npmrc", ".yarnrc", ".yarnrc.yml", ".mocharc.json",
     "node_modules", "jest.config.js", "jest.config.ts", "jest.config.mjs", "jest.config.cjs", "jest.config.json",
     "babel.config.js", ".babelrc", "vitest.config.ts", "vitest.config.js", "vitest.config.mts", "vitest.config.mjs",
     "vitest.workspace.ts", "vite.config.ts", "vite.config.js", "vite.config.mjs", "__mocks__"}
)  # fmt: skip


class NodeAdapter:
    """Ids are `<path>::<title>[::<title of a test in it>]`."""

    name = "node"
    configuration = NODE_CONFIGURATION
    in_memory: tuple[str, ...] = (".js", ".mjs", ".cjs")

    def invoke(self, order: Order) -> Invocation:
        if order.modules:
            request = {
                "files": dict(order.modules), "boot": BOOT, "reporter": REPORTER_URL, "options": list(order.arguments),
            }  # fmt: skip
            run = f"exec node --input-type=module -e {shlex.quote(MEMORY)}"
            command = f"ulimit -t {processor_seconds(order)}; cd {WORKDIR} && {run}"
            return Invocation(command, json.dumps(request).encode())
        files = " ".join(shlex.quote(path) for path in order.files)
        arguments = " ".join(shlex.quote(argument) for argument in order.arguments)
        # The runner's standard output is the private descriptor; files under test have pipes to the runner instead.
        run = f'OBSERVED_TO="/proc/$$/fd/1" exec node --test --test-reporter={shlex.quote(REPORTER_URL)} {arguments} {files}'
        redirect = '>&"$RESULT_FD" {RESULT_FD}>&-'
        return Invocation(f"ulimit -t {processor_seconds(order)}; cd {WORKDIR} && {run} {redirect}")

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        forged = Forged()
        for line, record in json_lines(result.result.replace(OBSERVED, b"")):
            if record is None or len(run.cases) > MAX_TESTS:
                forged.add("not a record of the reporter", line)
                continue
            if record.get("kind") == "done":
                run.finished = True
                continue
            if record.get("kind") == "seen":
                read_site(run, order, record)
                continue
            path, titles = _file(record.get("file")), record.get("path")
            if record.get("kind") != "test" or not isinstance(titles, list):
                continue
            message = text_of(record.get("message"), order.message_chars)
            if titles == [record.get("file")]:  # the file as a whole: it could not be run
                if record.get("status") != "passed":
                    run.file_errors[path] = message or "the file ended with an error"
                continue
            test_id = "::".join([path, *map(str, titles)])
            if test_id in run.cases:
                run.cases[test_id] = Case("error", "reported twice")
            else:
                run.cases[test_id] = _case(record.get("status"), message, number_of(record.get("seconds")))
        run.forged = tuple(forged.lines)
        return run


def _file(value: object) -> str:
    return str(value).removeprefix(f"{WORKDIR}/")


def _case(status: object, message: str, seconds: float) -> Case:
    if status == "passed" or status == "failed" or status == "skipped":
        return Case(status, message, seconds)
    return Case("error", f"status {status!r}"[:200], seconds)
