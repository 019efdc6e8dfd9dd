"""JUnit XML: for any command that writes such a report into the checkout. Parsed as a stream, without entities."""

from __future__ import annotations

import shlex
from typing import cast
from xml.parsers import expat

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    MAX_TESTS,
    Case,
    CaseStatus,
    Invocation,
    Order,
    TestRun,
    number_of,
    processor_seconds,
    started,
)

MAX_DEPTH, MAX_ELEMENTS = 32, 500_000
WORSE: dict[str, CaseStatus] = {"failure": "failed", "error": "error", "skipped": "skipped"}


class ReportRefused(ValueError):
    """The report is not plain XML."""


class JunitAdapter:
    """Ids are `<file or class name>::<name>`."""

    name = "junit"
    in_memory: tuple[str, ...] = ()
    configuration = frozenset({"pom.xml", "build.gradle", "build.gradle.kts", "gradle.properties", "settings.gradle"})

    def invoke(self, order: Order) -> Invocation:
        command = " ".join(shlex.quote(word) for word in order.arguments)
        report = shlex.quote(order.report)
        # An old report must not speak for this run; a link would make `cat` read something else.
        steps = f"rm -rf {report}; ({command}) {{RESULT_FD}}>&-; code=$?"
        send = f'[ -f {report} ] && [ ! -L {report} ] && cat {report} >&"$RESULT_FD"; exit $code'
        return Invocation(f"ulimit -t {processor_seconds(order)}; cd {WORKDIR} && {steps}; {send}")

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        try:
            run.cases = parse(result.result, order.message_chars)
        except ReportRefused as error:
            run.forged = (str(error),) if result.result else ()
            return run
        run.finished = not run.timed_out and not run.out_of_memory
        return run


def parse(data: bytes, message_chars: int) -> dict[str, Case]:
    """Cases by id. Raises ReportRefused for what is not a whole report, or one with a document type."""
    reader = _Reader(message_chars)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    parser.buffer_text = True
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ReportRefused(f"the report is not XML: {error}") from error
    except (UnicodeError, LookupError, ValueError) as error:
        raise ReportRefused(f"the report cannot be read: {error}") from error
    return reader.cases


class _Reader:
    def __init__(self, message_chars: int) -> None:
        self.cases: dict[str, Case] = {}
        self._chars, self._depth, self._elements = message_chars, 0, 0
        self._id: str | None = None
        self._status: CaseStatus = "passed"
        self._message, self._seconds, self._inside = "", 0.0, False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise ReportRefused(f"the report has more than {MAX_ELEMENTS} elements")
        if self._depth > MAX_DEPTH:
            raise ReportRefused(f"the report is nested deeper than {MAX_DEPTH}")
        if tag == "testcase":
            if len(self.cases) >= MAX_TESTS:
                raise ReportRefused(f"the report has more than {MAX_TESTS} tests")
            where = attributes.get("file") or attributes.get("classname") or ""
            self._id = f"{where}::{attributes.get('name', '')}"
            self._status, self._message, self._inside = "passed", "", False
            self._seconds = _seconds(attributes.get("time"))
        elif self._id is not None and tag in WORSE:
            if self._status in ("passed", "skipped"):
                self._status = WORSE[tag]
            if len(self._message) < self._chars:
                self._message += attributes.get("message", "")[: self._chars]
            self._inside = True

    def text(self, text: str) -> None:
        if self._inside and len(self._message) < self._chars:
            self._message += text

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag in WORSE:
            self._inside = False
        elif tag == "testcase" and self._id is not None:
            case = Case(self._status, self._message[: self._chars].strip(), self._seconds)
            self.cases[self._id] = Case("error", "reported twice") if self._id in self.cases else case
            self._id = None

    def refuse(self, *_: object) -> None:
        raise ReportRefused("the report has a document type or entities")


def _seconds(text: str | None) -> float:
    try:
        return number_of(float(cast(str, text)))
    except (TypeError, ValueError):
        return 0.0
