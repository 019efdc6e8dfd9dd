"""The interface between the grader and a test framework: how to start a run and how to read its report.

An adapter knows one framework. It runs nothing itself and sees no verdicts: `invoke` returns the command to run
in the clean sandbox, `read` turns the report from the private descriptor into a status per test id. Ids have the
form `<path>::<name>[::<name>]`, the path being that of the test file (or package directory) below the checkout.
"""

from __future__ import annotations

import logging
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sandbox.backends.base import EndReason, ExecResult
from sandbox.storable import JSONRefused, parse_json

log = logging.getLogger(__name__)

CPU_EXIT_CODES = frozenset({-24, 128 + 24, -9, 128 + 9})
"""SIGXCPU and the SIGKILL that follows it, as bash reports them."""
MESSAGE_CHARS = 400
MAX_HITS = 20_000
"""Reports of one run that are read."""
MAX_TESTS = 50_000
"""More reported tests than this are not read: a report is produced beside code under test."""
MAX_RECORDS = 400_000
"""The same of records of any kind: a longest report has that many of 80 bytes."""
MAX_FORGED = 20
"""Records that the runner cannot have written which are kept."""
MAX_NODES = 3_000_000
"""Parts of the values that the observed assertions of one run report; each takes about 150 bytes of memory here."""


CaseStatus = Literal["passed", "failed", "error", "skipped", "missing", "timeout"]


@dataclass(frozen=True, slots=True)
class Hit:
    """One report from inside the sandbox. Nothing in it is trusted."""

    site: int
    values: tuple[Any, ...] = ()
    """The encoded leaves, in order; fewer when evaluating one raised."""
    raised: Any = None
    """The encoded exception that ended the evaluation, if one did."""


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
    modules: Mapping[str, str] = field(default_factory=dict)
    """pytest and unittest: test modules that are handed over in memory, path → text."""
    sites: Mapping[int, str] = field(default_factory=dict)
    """node, jest and vitest: observed assertion → id of its test."""
    preload: tuple[str, ...] = ()
    """pytest and unittest: modules under test, imported before the test modules are read."""
    indexed: Literal["", "use", "tell"] = ""
    """Rewritten Python tests, which call the observer. pytest: parameters in ids are numbers of rows; `tell` also reports the
    id that pytest gives (`TestRun.given`)."""


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
    observed: dict[str, list[Hit]] = field(default_factory=dict)
    """Test id → what its observed assertions reported (`observations/`)."""
    nodes: int = 0
    """Parts of all the values in `observed`."""
    given: dict[str, str] = field(default_factory=dict)
    """With `Order.indexed` = `tell`: the framework's own id → the id with numbers of rows."""
    compiled_in: frozenset[str] = frozenset()
    """go and cargo: files below the checkout that the compiler read for the product, besides those of its own folder's code
    (go: what `//go:embed` takes in; cargo: all sources of libraries and programs)."""
    forged: tuple[str, ...] = ()
    """Records that the runner cannot have written, one line each."""
    finished: bool = False
    """Whether the runner came to its end, so that nothing after the last test can be hidden."""
    timed_out: bool = False
    out_of_memory: bool = False
    unreadable: str = ""
    """Why the report could not be read at all; then nothing in it counts."""
    ending: str = ""
    """How the process ended and the last it printed, for people."""

    def status(self, test_id: str) -> CaseStatus:
        case = self.cases.get(test_id)
        return "missing" if case is None else case.status


class Adapter(Protocol):
    """One framework."""

    name: str
    in_memory: tuple[str, ...]
    """Endings of test files that it can run from memory (`Order.modules`)."""
    configuration: frozenset[str]
    """Names of files that configure its runs: an agent's changes to them are not graded."""

    def invoke(self, order: Order) -> Invocation: ...

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        """Never raises for what `result` holds (call it through `read_report`, which does not rely on that)."""
        ...


def read_report(adapter: Adapter, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
    """What `adapter` reads in the report of a run. A report is written beside code under test and may hold anything, so a
    reader that raises is an unreadable report, never an error of the caller."""
    try:
        return adapter.read(order, invocation, result)
    except Exception as error:
        log.warning("the %s report could not be read", adapter.name, exc_info=True)
        run = started(result)
        run.unreadable = f"the report of the tests cannot be read: {type(error).__name__}: {error}"[:MESSAGE_CHARS]
        return run


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


START_SECONDS = 3.0
"""What a runner may take to start and to report, besides the limit of its tests."""


def processor_seconds(order: Order) -> int:
    """For `ulimit -t`: whole seconds, at least one."""
    return max(1, math.ceil(order.seconds))


def own_seconds(order: Order) -> float:
    """What a run may take on a machine with nothing else to do, asleep or at work."""
    return order.budget + processor_seconds(order) + START_SECONDS


def wall_seconds(order: Order) -> float:
    """The most that a run may take on a busy machine, where it waits for a processor."""
    if order.budget:
        return 3.0 * order.budget + 2.0 * processor_seconds(order)
    return wall_for(processor_seconds(order))


def wall_for(seconds: float) -> float:
    return min(10.0 * seconds + 60.0, 3.0 * seconds + 600.0)


NOT_EMPTY = re.compile(rb"[^\n]")


def json_lines(data: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line of `data` with the JSON object that follows `prefix` at its beginning; None for a line that holds no such object,
    or one that is nested deeper than any report is.

    Of the lines that begin otherwise only the first MAX_FORGED come, and none after MAX_RECORDS objects: the work may write
    millions.
    """
    begin, position, junk, records = prefix + b"{", 0, 0, 0
    while position < len(data):
        if data.startswith(begin, position):
            end = _end_of_line(data, position, len(data))
            line, position, records = data[position:end], end + 1, records + 1
            yield line, _object(line[len(prefix) :]) if records <= MAX_RECORDS else None
            if records > MAX_RECORDS:
                return
            continue
        following = data.find(b"\n" + begin, position)
        stop = len(data) if following < 0 else following
        while junk < MAX_FORGED and (found := NOT_EMPTY.search(data, position, stop)) is not None:
            end = _end_of_line(data, found.start(), stop)
            yield data[found.start() : end], None
            position, junk = end + 1, junk + 1
        position = stop + 1


def _end_of_line(data: bytes, position: int, stop: int) -> int:
    end = data.find(b"\n", position, stop)
    return stop if end < 0 else end


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        body = parse_json(text)
    except JSONRefused:
        return None
    return body if isinstance(body, dict) else None


class Forged:
    """Records that the runner cannot have written. The first MAX_FORGED are kept, and no more are looked at."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, why: str, what: bytes | str) -> None:
        if len(self.lines) < MAX_FORGED:
            shown = repr(what[:80].decode("utf-8", "replace")) if isinstance(what, bytes) else what[:120]
            self.lines.append(f"{why}: {shown}")


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


BUILT = b"\x02built "
"""Begins a line that names files which the compiler read for the product; it is written before the product runs."""


def below_checkout(path: str, root: str) -> str:
    """A path of a compiler, which may be absolute or hold `..`, as one below the checkout."""
    return posixpath.normpath(posixpath.join(root, path)).removeprefix(f"{root}/")


def read_hit(run: TestRun, record: Mapping[str, Any]) -> bool:
    """Add a report of an observed assertion to `run`; False when it is not one, or there are too many."""
    site, values, test_id = record.get("site"), record.get("values"), record.get("id")
    if (
        isinstance(site, bool)
        or not isinstance(site, int)
        or not isinstance(values, list)
        or not isinstance(test_id, str)
    ):
        return False
    hits = run.observed.setdefault(test_id, [])
    if len(run.observed) > MAX_TESTS or len(hits) >= MAX_HITS:
        return False
    run.nodes += _nodes(values, MAX_NODES - run.nodes)
    if run.nodes > MAX_NODES:
        return False
    hits.append(Hit(site, tuple(values), record.get("raised")))
    return True


def _nodes(data: Any, most: int) -> int:
    """Parts of a JSON value; of more than `most` not all are counted."""
    count, left = 0, [data]
    while left and count <= most:
        node = left.pop()
        count += len(node)
        left += [part for part in (node.values() if isinstance(node, dict) else node) if isinstance(part, dict | list)]
    return count


def read_site(run: TestRun, order: Order, record: Mapping[str, Any]) -> bool:
    """As `read_hit`, for a report that names its site and not its test."""
    site = record.get("site")
    return isinstance(site, int) and site in order.sites and read_hit(run, {**record, "id": order.sites[site]})


def files_of(ids: Sequence[str]) -> tuple[str, ...]:
    """The files of test ids, sorted."""
    return tuple(sorted({test_id.split("::", 1)[0] for test_id in ids}))
