"""`cargo test`: the text that libtest writes, section by section (its JSON form is not in stable toolchains).

Everything is compiled before the first test program starts; sources of integration tests are removed in between.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.grading.adapters.base import (
    BUILT,
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
RESULT = re.compile(r"test result: (?:ok|FAILED)\. \d+ passed; \d+ failed; .*")
LISTS: dict[str, CaseStatus] = {"successes:": "passed", "failures:": "failed"}
LISTED = re.compile(r"    (?P<name>\S+)")
DETAILS = re.compile(r"---- (?P<name>\S+) stdout ----")
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
        text = result.result.decode("utf-8", "replace")
        target, details, open_sections, errors, listing = "", "", 0, [], ""
        unit = any("tests" not in PurePosixPath(path).parts for path in order.files)
        built: set[str] = set()
        listed: dict[str, set[CaseStatus]] = {}
        messages: dict[str, list[str]] = {}
        for line in text.split("\n"):
            if target and (found := LISTED.fullmatch(line)) and listing:
                listed.setdefault(f"{target}::{found['name']}", set()).add(LISTS[listing])
            elif not LISTED.fullmatch(line):
                listing = line if line in LISTS else ""
            if section := SECTION.fullmatch(line):
                target, details, open_sections = section["path"], "", open_sections + 1
            elif DOC_SECTION.fullmatch(line):
                target, details, open_sections = "doc", "", open_sections + 1
            elif RESULT.fullmatch(line):
                open_sections, details = open_sections - 1, ""
            elif found := DETAILS.fullmatch(line):
                details = f"{target}::{found['name']}"
            elif details and (seen := OBSERVED.fullmatch(line)):
                read_hit(run, hit_of(details, seen))
            elif details:
                messages.setdefault(details, []).append(line)
            elif (found := TEST.fullmatch(line)) and target and len(run.cases) < MAX_TESTS:
                test_id = f"{target}::{found['name']}"
                known = test_id in run.cases
                run.cases[test_id] = Case("error", "reported twice") if known else Case(_status(found["status"]))
            elif not target and line.startswith(BUILT.decode()):
                built |= sources_of(line.removeprefix(BUILT.decode()), unit)
            elif line.startswith("error"):
                errors.append(line)
        run.compiled_in = frozenset(built)
        for test_id, statuses in listed.items():  # its line was torn by what the work wrote beside it
            if test_id not in run.cases:
                run.cases[test_id] = Case(statuses.pop() if len(statuses) == 1 else "error")
        for test_id, lines in messages.items():
            if test_id in run.cases and run.cases[test_id].status == "failed":
                run.cases[test_id] = Case("failed", "\n".join(lines).strip()[: order.message_chars])
        run.finished = bool(run.cases) and open_sections == 0
        if not run.cases:
            run.file_errors = dict.fromkeys(order.files, "\n".join(errors)[-order.message_chars :] or run.ending)
        return run


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
