"""What a test framework is to the grader: how its run is started, and how what came back is read.

An adapter knows one framework. It runs nothing itself and sees nothing of verdicts: `invoke` says what command runs
in the clean sandbox, `read` turns what came back over the private descriptor into a status per test id. Ids have the
form `<path>::<name>[::<name>]`, the path being that of the test file (or package directory) below the checkout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.backends.base import EndReason, ExecResult
from sandbox.grading.report import CaseStatus

CPU_EXIT_CODES = frozenset({-24, 128 + 24, -9, 128 + 9})
"""SIGXCPU and the SIGKILL that follows it, as bash reports them."""
MESSAGE_CHARS = 400
MAX_TESTS = 50_000
"""More reported tests than this are not read: a report is produced beside code under test."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run. `ids` None means everything in `files` (for measuring a suite, never for a verdict)."""

    files: tuple[str, ...]
    ids: tuple[str, ...] | None
    seconds: float
    """Processor time that the tests may use; wall time is bounded by several times as much."""
    python: str = "python3"
    arguments: tuple[str, ...] = ()
    conftest: bool = False
    """pytest: whether configuration modules of the (pristine) tests take part."""
    source_roots: tuple[str, ...] = ()
    report: str = ""
    """JUnit XML: path of the report below the checkout."""
    message_chars: int = MESSAGE_CHARS
    cover: bool = False
    """pytest: also report which functions each test enters."""
    budget: float = 0.0
    """pytest, `ids` None: seconds of tests after which only a spread sample of the others is run; 0: all are run."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command of the clean sandbox. Its private descriptor is in `$RESULT_FD`."""

    command: str
    stdin: bytes = b""
    secret: str = ""
    """What marks genuine records, where the framework lets the runner mark them."""


@dataclass(frozen=True, slots=True)
class Case:
    status: CaseStatus
    message: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class TestRun:
    """What a run reported."""

    __test__ = False  # not a test class for pytest

    cases: dict[str, Case] = field(default_factory=dict)
    file_errors: dict[str, str] = field(default_factory=dict)
    """Files (or packages) that could not be loaded → why."""
    calls: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    """With `Order.cover`: test id → (path below the checkout, first line) of each function that the test entered."""
    left_out: int = 0
    """With `Order.budget`: tests that were collected and not run, because they did not fit."""
    forged: tuple[str, ...] = ()
    """Records that the runner cannot have written, one line each."""
    finished: bool = False
    """Whether the runner came to its end, so that nothing after the last test can be hidden."""
    timed_out: bool = False
    out_of_memory: bool = False
    ending: str = ""
    """How the process ended and the last it printed, for people."""

    def status(self, test_id: str) -> CaseStatus:
        case = self.cases.get(test_id)
        return "missing" if case is None else case.status


class Adapter(Protocol):
    """One framework."""

    name: str
    configuration: frozenset[str]
    """Names of files that configure its runs: an agent's changes to them are not carried into grading."""

    def invoke(self, order: Order) -> Invocation: ...

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        """Never raises for what `result` holds."""
        ...


def started(result: ExecResult) -> TestRun:
    """A run of which only the ending is known yet."""
    said = result.output.decode("utf-8", "replace").strip()[-300:]
    if result.overflowed:
        said = (
            f"the report of its tests is longer than may be kept; run fewer of them, or give them shorter names\n{said}"
        )
    return TestRun(
        timed_out=result.ended is EndReason.TIMEOUT or result.exit_code in CPU_EXIT_CODES,
        out_of_memory=result.ended is EndReason.MEMORY,
        ending=f"{result.ended}, exit code {result.exit_code}: {said}",
    )


def processor_seconds(order: Order) -> int:
    """For `ulimit -t`: whole seconds, at least one."""
    return max(1, math.ceil(order.seconds))


def wall_seconds(order: Order) -> float:
    """The net behind processor time, wide enough for a busy machine; a budget bounds waiting as well."""
    if order.budget:
        return 3.0 * order.budget + 2.0 * processor_seconds(order)
    return wall_for(processor_seconds(order))


def wall_for(seconds: float) -> float:
    return min(10.0 * seconds + 60.0, 3.0 * seconds + 600.0)


def json_lines(data: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line of `data` with the JSON object after `prefix`; None for a line that holds no such object."""
    for line in data.split(b"\n"):
        if not line:
            continue
        body: Any = None
        if line.startswith(prefix):
            try:
                body = json.loads(line[len(prefix) :])
            except (ValueError, RecursionError):
                body = None
        yield line, body if isinstance(body, dict) else None


def text_of(value: object, limit: int = MESSAGE_CHARS) -> str:
    """The end of a text from a report; "" for anything else."""
    return value[-limit:] if isinstance(value, str) else ""


def number_of(value: object) -> float:
    """A finite, not negative number from a report; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if 0.0 <= number < 1e9 else 0.0


def files_of(ids: Sequence[str]) -> tuple[str, ...]:
    """The files of test ids, sorted."""
    return tuple(sorted({test_id.split("::", 1)[0] for test_id in ids}))
