"""`go test -json`: events of each package, converted by the go tool outside the test's process.

A package's test files are removed once its test program is compiled, before the program starts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    MAX_TESTS,
    Case,
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

ENVIRONMENT = "GOFLAGS=-mod=mod GOPROXY=off GOSUMDB=off GOTOOLCHAIN=local CGO_ENABLED=0"
MAX_OUTPUT_LINES = 200
RUN = "'sh' '-c' 'rm -f ./*_test.go; exec \"$@\"' 'sh'"
"""How a compiled test program starts, in its package's folder; go splits and unquotes the words."""
OBSERVED = re.compile(r"\x02observed (\d{1,9})((?: [0-9a-f]*\.){1,4})\n?")
"""The report of an observed assertion (`observations/go.py`, `observations/rust.py`): site, values as hexadecimal."""
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
        run = f"exec go test -json -count=1 -vet=off -p=1 -exec {shlex.quote(RUN)} {chosen} {arguments} {folders}"
        # The first line names the module, because events name packages by it.
        steps = f'cd {WORKDIR} && go list -m >&"$RESULT_FD" && {run} >&"$RESULT_FD" {{RESULT_FD}}>&-'
        return Invocation(f"ulimit -t {processor_seconds(order)}; export {ENVIRONMENT}; {steps}")

    def read(self, order: Order, invocation: Invocation, result: ExecResult) -> TestRun:
        run = started(result)
        first, _, events = result.result.partition(b"\n")
        module = first.decode("utf-8", "replace").strip()
        said: dict[str, list[str]] = {}
        ended: dict[str, bool] = {}
        forged: list[str] = []
        for line, event in json_lines(events):
            if event is None or len(run.cases) > MAX_TESTS:
                forged.append(f"not an event of go test: {line[:80].decode('utf-8', 'replace')!r}")
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
            elif action == "output" and len(said.setdefault(key, [])) < MAX_OUTPUT_LINES:
                said[key].append(text_of(event.get("Output"), 2000))
            elif action in ("pass", "fail", "skip"):
                if name is None:
                    ended[folder] = action != "fail"
                elif key in run.cases:
                    run.cases[key] = Case("error", "reported twice")
                    forged.append(f"reported twice: {key[:120]}")
                else:
                    status = {"pass": "passed", "fail": "failed", "skip": "skipped"}[str(action)]
                    message = _message(said.get(key, ()), order.message_chars) if action == "fail" else ""
                    run.cases[key] = Case(status, message, number_of(event.get("Elapsed")))  # type: ignore[arg-type]
        run.finished = bool(order.files) and all(folder in ended for folder in order.files)
        for folder, passed in ended.items():
            if not passed and not any(test_id.startswith(f"{folder}::") for test_id in run.cases):
                run.file_errors[folder] = _message(said.get(folder, ()), order.message_chars) or run.ending
        for folder in (name for name, passed in ended.items() if passed):
            failed = [test_id for test_id, case in run.cases.items() if case.status == "failed"]
            if any(test_id.startswith(f"{folder}::") for test_id in failed):
                forged.append(f"the program of {folder} ends with success, and its tests fail")
        run.forged = tuple(forged[:20])
        return run


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
