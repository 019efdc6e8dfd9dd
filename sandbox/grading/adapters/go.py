"""`go test -json`: events of each package, converted by the go tool outside the test's process.

Every test program is compiled before the first one starts; all test files are removed in between.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    BUILT,
    MAX_TESTS,
    Case,
    CaseStatus,
    Forged,
    Invocation,
    Order,
    TestRun,
    below_checkout,
    json_lines,
    number_of,
    processor_seconds,
    read_hit,
    started,
    text_of,
)

ENVIRONMENT = "GOFLAGS=-mod=mod GOPROXY=off GOSUMDB=off GOTOOLCHAIN=local CGO_ENABLED=0"
MAX_OUTPUT_LINES = 200
RUN = f"'sh' '-c' 'find {WORKDIR} -name testdata -prune -o -name \"*_test.go\" -exec rm -f {{}} +; exec \"$@\"' 'sh'"
"""How a compiled test program starts, in its package's folder; go splits and unquotes the words."""
BUILD_FIRST = "-bench '^$'"
"""Where benchmarks are asked for, and be it none, go compiles every package before it starts the first program."""
EMBEDS = (
    "{ ! grep -rq --include='*.go' --exclude='*_test.go' 'go:embed' . || go list -e -f "
    """'{{$dir := .Dir}}{{range .EmbedFiles}}{{printf "\\x02built %s/%s\\n" $dir .}}{{end}}' ./...; }"""
)
"""Tells what files the product's own packages embed."""
OBSERVED = re.compile(r"\x02observed (\d{1,9})((?: [0-9a-f]*\.){1,4})\n?")
"""The report of an observed assertion (`go.py`, `rust.py` of `observations/brace_tests`): site, values as hexadecimal."""
TORN = re.compile(r"--- (?P<status>PASS|FAIL|SKIP): (?P<name>\S+) \([\d.]+s\)\n?$")
"""The end of a test behind something printed without a newline, which go's own reader (before 1.20) takes for output."""
STATUSES: dict[str, CaseStatus] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
UNBUILT = re.compile(rb"FAIL\t(?P<package>\S+) \[(?:build|setup) failed\]\s*$")
"""What go before 1.24 says of a package that it could not build, beside its events."""
NOISE = ("=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- ")


class GoAdapter:
    """Ids are `<directory of the package>::<TestName>[/subtest]`; the top package is `.`."""

    name = "go"
    in_memory: tuple[str, ...] = ()
    configuration = frozenset({"go.mod", "go.sum", "go.work", "go.work.sum", "vendor"})

    def invoke(self, order: Order) -> Invocation:
        folders = " ".join(shlex.quote(f"./{folder}" if folder != "." else ".") for folder in order.files)
        chosen = "" if order.ids is None else f"-run {shlex.quote(pattern(order.ids))}"
        arguments = " ".join(shlex.quote(argument) for argument in order.arguments)
        how = f"-json -count=1 -vet=off -p=1 {BUILD_FIRST} -exec {shlex.quote(RUN)}"
        run = f"exec go test {how} {chosen} {arguments} {folders}"
        # The first line names the module, because events name packages by it.
        told = f'go list -m >&"$RESULT_FD" && {EMBEDS} >&"$RESULT_FD"'
        steps = f'cd {WORKDIR} && {told} && {run} >&"$RESULT_FD" {{RESULT_FD}}>&-'
        return Invocation(f"ulimit -t {processor_seconds(order)}; export {ENVIRONMENT}; {steps}")

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        first, _, events = result.result.partition(b"\n")
        module = first.decode("utf-8", "replace").strip()
        said: dict[str, list[str]] = {}
        ended: dict[str, bool] = {}
        forged = Forged()
        torn: dict[str, list[CaseStatus]] = {}
        built, events = _without_built(events)
        run.compiled_in = frozenset(below_checkout(path, WORKDIR) for path in built)
        for line, event in json_lines(events):
            if event is None and (unbuilt := UNBUILT.match(line)):
                ended.setdefault(_folder(module, unbuilt["package"].decode("utf-8", "replace")), False)
                continue
            if event is None or len(run.cases) > MAX_TESTS:
                forged.add("not an event of go test", line)
                continue
            folder = _folder(module, str(event.get("Package")))
            name, action = event.get("Test"), event.get("Action")
            key = folder if name is None else f"{folder}::{name}"
            if (
                action == "output"
                and name is not None
                and (seen := OBSERVED.search(text_of(event.get("Output"), 8000)))
            ):
                read_hit(run, hit_of(key, seen))
            elif action == "output" and (end := _torn(text_of(event.get("Output"), 2000))):
                torn.setdefault(f"{folder}::{end['name']}", []).append(STATUSES[end["status"].lower()])
            elif action == "output" and len(said.setdefault(key, [])) < MAX_OUTPUT_LINES:
                said[key].append(text_of(event.get("Output"), 2000))
            elif action in ("pass", "fail", "skip"):
                if name is None:
                    ended[folder] = action != "fail"
                elif key in run.cases:
                    run.cases[key] = Case("error", "reported twice")
                    forged.add("reported twice", key)
                else:
                    status = STATUSES[str(action)]
                    message = _message(said.get(key, ()), order.message_chars) if action == "fail" else ""
                    run.cases[key] = Case(status, message, number_of(event.get("Elapsed")))
        for key, ends in torn.items():
            if key not in run.cases and len(ends) == 1:
                run.cases[key] = Case(ends[0])
            else:  # beside an event there is no other end of the same test, unless the work wrote one of them
                run.cases[key] = Case("error", "reported twice")
                forged.add("reported twice", key)
        run.finished = bool(order.files) and all(folder in ended for folder in order.files)
        known = {test_id.partition("::")[0] for test_id in run.cases}
        failing = {test_id.partition("::")[0] for test_id, case in run.cases.items() if case.status == "failed"}
        for folder, passed in ended.items():
            if not passed and folder not in known:
                run.file_errors[folder] = _message(said.get(folder, ()), order.message_chars) or run.ending
            if passed and folder in failing:
                forged.add("tests fail, and their program ends with success", folder)
            if not passed and folder in known - failing and run.cases.keys() >= set(order.ids or ()):
                for test_id, case in run.cases.items():  # somebody else said that they pass, or it crashed after them
                    if test_id.partition("::")[0] == folder and case.status == "passed":
                        run.cases[test_id] = Case("failed", "its test program fails, and no test does", case.seconds)
        run.forged = tuple(forged.lines)
        return run


def _torn(output: str) -> re.Match[str] | None:
    """The end of a test in an output that begins with something else."""
    found = TORN.search(output)
    return found if found is not None and output[: found.start()].strip("\n ") else None


def _without_built(report: bytes) -> tuple[list[str], bytes]:
    """The files that the lines at the beginning of a report name, and the rest of it."""
    found: list[str] = []
    position = 0
    while report.startswith(BUILT, position):
        end = report.find(b"\n", position)
        end = len(report) if end < 0 else end
        found.append(report[position + len(BUILT) : end].decode("utf-8", "replace"))
        position = end + 1
    return found, report[position:]


def hit_of(test_id: str, seen: re.Match[str]) -> dict[str, object]:
    """A line that OBSERVED matches as a record for `read_hit`."""
    values = [
        bytes.fromhex(word).decode("utf-8", "replace")
        for word in seen[2].replace(".", "").split(" ")[1:]
        if len(word) % 2 == 0
    ]
    return {"id": test_id, "site": int(seen[1]), "values": values}


def pattern(ids: Iterable[str]) -> str:
    """A `-run` expression for the top-level tests of these ids."""
    names = {test_id.partition("::")[2].partition("/")[0] for test_id in ids}
    return f"^({'|'.join(sorted(map(re.escape, names)))})$"


def _folder(module: str, package: str) -> str:
    if package == module:
        return "."
    return package.removeprefix(f"{module}/")


def _message(lines: Iterable[str], chars: int) -> str:
    return "".join(line for line in lines if not line.lstrip().startswith(NOISE)).strip()[-chars:]
