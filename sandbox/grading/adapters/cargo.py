"""`cargo test`: the text that libtest writes, section by section (its JSON form is not in stable toolchains).

Everything is compiled before the first test program starts; sources of integration tests are removed in between.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePosixPath

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    BUILT,
    MAX_RECORDS,
    MAX_TESTS,
    Case,
    CaseStatus,
    Invocation,
    Order,
    TestRun,
    below_checkout,
    processor_seconds,
    read_hit,
    started,
)
from sandbox.grading.adapters.go import OBSERVED, hit_of

SECTION = re.compile(r"\s*Running (?:unittests )?(?P<path>\S+\.rs) \(.*\)\s*")
DOC_SECTION = re.compile(r"\s*Doc-tests \S+\s*")
TEST = re.compile(
    r"test (?P<name>\S+)(?: - should panic)? \.\.\. (?P<status>ok|FAILED|ignored(?:, .*)?)(?: <[\d.]+s>)?"
)
RESULT = re.compile(r"test result: (?:ok|FAILED)\. (?P<passed>\d{1,9}) passed; (?P<failed>\d{1,9}) failed; .*")
LISTS: dict[str, CaseStatus] = {"successes:": "passed", "failures:": "failed"}
LISTED = re.compile(r"    (?P<name>\S+)")
DETAILS = re.compile(r"---- (?P<name>\S+) stdout ----")
MARKED = re.compile(
    r"\n(?=[^\S\n]*+(?:Running|Doc-tests) |---- \S++ stdout ----\n|(?:successes|failures):\n|\x02(?:observed|built) "
    r"|test (?:result: (?:ok|FAILED)\. |\S++(?: - should panic)? \.\.\. (?:ok|FAILED|ignored)))"
)
"""Before each line that any of these may match, but for LISTED. The work may write millions of others, which nothing looks at."""
BLOCK = 1 << 17
ERROR = re.compile(r"\nerror.*")
MAX_ERRORS, MAX_DETAILS = 200, 20_000
"""Lines of errors, and characters of what one test wrote, that are kept."""
CLEAN = f'find {WORKDIR} -path "*/target" -prune -o -path "*/tests/*" -name "*.rs" -exec rm -f {{}} +'
RUNNER = (
    f"runner=$(mktemp -d)/run; printf '%s\\n' '{CLEAN}' 'exec \"$@\" 2>&9 9>&-' > $runner; "
    'host=$(rustc -vV | sed -n "s/^host: //p" | tr a-z- A-Z_); export "CARGO_TARGET_${host}_RUNNER=sh $runner"'
)
"""How compiled test programs start. What they write to their error output does not reach the report."""
SOURCES = (
    'find "${CARGO_TARGET_DIR:-.}" -path "*/deps/*.d" -exec cat {} + | '
    """grep -E '^[^ ]+: ' | grep -vE "^[^ ]+: +${CARGO_HOME:-$HOME/.cargo}/registry/" | sed 's/^/\x02built /'"""
)
"""Tells what sources each library and program was compiled from (`target: root other…`), those of dependencies left out: a path
of the product may hold any name."""
ENVIRONMENT = "CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never CARGO_TERM_PROGRESS_WHEN=never RUST_BACKTRACE=0"


class CargoAdapter:
    """Ids are `<path of the test target's root file>::<module>::<test>`."""

    name = "cargo"
    in_memory: tuple[str, ...] = ()
    configuration = frozenset(
        {"Cargo.toml", "Cargo.lock", "build.rs", "rust-toolchain", "rust-toolchain.toml", ".cargo", "target",
         "clippy.toml", "rustfmt.toml"}
    )  # fmt: skip

    def invoke(self, order: Order) -> Invocation:
        words = ["cargo", "test", "--offline", "--no-fail-fast", *targets(order.files), *order.arguments]
        run = " ".join(shlex.quote(word) for word in words)
        built = f'{run} --no-run >&"$RESULT_FD" 2>&1 {{RESULT_FD}}>&- && {{ {SOURCES} >&"$RESULT_FD"; :; }}'
        tests = f'{run} -- --test-threads=1 --show-output 9>&2 >&"$RESULT_FD" 2>&1 {{RESULT_FD}}>&-'
        steps = f"cd {WORKDIR} && {built} && {tests}"
        return Invocation(f"ulimit -t {processor_seconds(order)}; export {ENVIRONMENT}; {RUNNER}; {steps}")

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        text = f"\n{result.result.decode('utf-8', 'replace')}\n"
        report = _Report(run, any("tests" not in PurePosixPath(path).parts for path in order.files))
        position = 1
        for number, found in enumerate(_marked(text)):
            if number >= MAX_RECORDS:
                run.unreadable = f"the report has more than {MAX_RECORDS} lines of a test runner"
                break
            if position <= found.start():
                report.read_between(text, position, found.start())
            end = text.find("\n", found.end())
            report.read_line(text[found.end() : end])
            position = end + 1
        report.read_between(text, position, len(text) - 1)
        run.compiled_in = frozenset(report.built)
        if report.contradicts and not run.unreadable:
            run.unreadable = f"lines of tests say something else than {report.contradicts}"
        for test_id, statuses in report.listed.items():  # its line was torn by what the work wrote beside it
            if test_id not in run.cases:
                run.cases[test_id] = Case(statuses.pop() if len(statuses) == 1 else "error")
        for test_id, parts in report.messages.items():
            if test_id in run.cases and run.cases[test_id].status == "failed":
                run.cases[test_id] = Case("failed", "\n".join(parts).strip()[: order.message_chars])
        run.finished = bool(run.cases) and report.open_sections == 0
        if not run.cases:
            errors = "".join(found[0] for found in islice(ERROR.finditer(text), MAX_ERRORS)).strip()
            run.file_errors = dict.fromkeys(order.files, errors[-order.message_chars :] or run.ending)
        return run


def _marked(text: str) -> Iterator[re.Match[str]]:
    """As `MARKED.finditer`, in blocks of lines: between two of them other threads have their turn."""
    position = 0
    while position < len(text) - 1:
        end = text.find("\n", min(position + BLOCK, len(text) - 1)) + 1
        yield from MARKED.finditer(text, position, end)
        position = end - 1


class _Report:
    """The sections of a report, as far as they are read."""

    def __init__(self, run: TestRun, unit: bool) -> None:
        self.run, self.unit = run, unit
        self.built: set[str] = set()
        self.listed: dict[str, set[CaseStatus]] = {}
        self.messages: dict[str, list[str]] = {}
        self.open_sections = 0
        self.contradicts = ""
        """What libtest says at the end of a section, where the lines of its tests say something else: the work wrote some."""
        self._told: dict[str, CaseStatus] = {}
        self._failures: set[str] = set()
        """What the section's lines of tests say, and the list of failures at its end. Tests may print such a list before it."""
        self._target = self._details = self._listing = ""
        self._room, self._names = 0, 0

    def read_line(self, line: str) -> None:
        """Read a line that MARKED finds."""
        self._listing = line if line in LISTS else ""
        if line in LISTS:
            self._failures = set()
        if section := SECTION.fullmatch(line):
            self._told, self._failures = {}, set()
            self._target, self._details, self.open_sections = section["path"], "", self.open_sections + 1
        elif DOC_SECTION.fullmatch(line):
            self._target, self._details, self.open_sections = "doc", "", self.open_sections + 1
        elif result := RESULT.fullmatch(line):
            self._compare(int(result["passed"]), int(result["failed"]))
            self.open_sections, self._details = self.open_sections - 1, ""
        elif found := DETAILS.fullmatch(line):
            self._details, self._room = f"{self._target}::{found['name']}", MAX_DETAILS
        elif self._details and (seen := OBSERVED.fullmatch(line)):
            read_hit(self.run, hit_of(self._details, seen))
        elif self._details:
            self._keep(line)
        elif (found := TEST.fullmatch(line)) and self._target and len(self.run.cases) < MAX_TESTS:
            test_id = f"{self._target}::{found['name']}"
            known = test_id in self.run.cases
            self._told[test_id] = status = _status(found["status"])
            self.run.cases[test_id] = Case("error", "reported twice") if known else Case(status)
        elif not self._target and line.startswith(BUILT.decode()):
            self.built |= sources_of(line.removeprefix(BUILT.decode()), self.unit)

    def read_between(self, text: str, position: int, end: int) -> None:
        """Read the other lines from one up to the next that is marked, which are `text[position:end]`."""
        if self._details:
            self._keep(text[position : min(end, position + self._room)])
        while self._listing and position <= end:
            stop = text.find("\n", position)
            found = LISTED.fullmatch(text, position, stop)
            self._names += 1
            if found is None or self._names > 2 * MAX_TESTS:
                self._listing = ""
            elif self._target:
                test_id = f"{self._target}::{found['name']}"
                self.listed.setdefault(test_id, set()).add(LISTS[self._listing])
                if LISTS[self._listing] == "failed":
                    self._failures.add(test_id)
            position = stop + 1

    def _compare(self, passed: int, failed: int) -> None:
        """Compare a section's lines of tests with what libtest says at its end: fewer may be whole, but none may say more. Names
        of documentation tests are not read."""
        if self._target == "doc" or len(self.run.cases) >= MAX_TESTS:
            return
        statuses = list(self._told.values())
        wrong = sorted(name for name in self._failures if failed and self._told.get(name) == "passed")
        if wrong:
            self.contradicts = f"the list of failures, which names {wrong[0]}"
        elif statuses.count("passed") > passed or statuses.count("failed") > failed:
            self.contradicts = f"their result: {passed} passed, {failed} failed"

    def _keep(self, part: str) -> None:
        if self._room > 0:
            self.messages.setdefault(self._details, []).append(part[: self._room])
            self._room -= len(part) + 1


def sources_of(line: str, unit: bool) -> set[str]:
    """Files that a library or a program of the product is compiled from, by a line of dependencies (`target: root other…`).

    Programs whose root is a test are left out, and with `unit` every program: it may be the product with its own tests.
    """
    target, _, rest = line.partition(": ")
    found = [below_checkout(path.replace("\\ ", " "), WORKDIR) for path in re.split(r"(?<!\\) ", rest) if path]
    library = target.endswith((".rlib", ".rmeta", ".so", ".a"))
    if not library and (unit or "tests" in PurePosixPath(found[0] if found else "").parts):
        return set()
    return set(found)


def targets(files: Sequence[str]) -> list[str]:
    """The targets whose root files these are."""
    words: list[str] = []
    for path in map(PurePosixPath, files):
        if path.name == "main.rs" and path.parent.name not in ("src", ""):
            words += ["--test", path.parent.name]
        elif path.parts[0] == "tests" or "tests" in path.parts:
            words += ["--test", path.stem]
        elif path.name == "lib.rs":
            words.append("--lib")
        else:
            words.append("--bins")
    return list(words)


def _status(word: str) -> CaseStatus:
    return "passed" if word == "ok" else "failed" if word == "FAILED" else "skipped"
