"""Reports of `go test` and `cargo test` beside what the work writes, and what compilers say of the product."""

from __future__ import annotations

import json

import pytest

from sandbox.backends.base import WORKDIR, EndReason, ExecResult
from sandbox.grading.adapters.base import Order, TestRun
from sandbox.grading.adapters.cargo import CargoAdapter, sources_of
from sandbox.grading.adapters.go import GoAdapter
from sandbox.grading.canaries.insertion import PreparedSuite
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verifiers.judging import Judgement, judge_compiled, judge_run


def read(adapter: GoAdapter | CargoAdapter, report: str, *files: str) -> TestRun:
    order = Order(files=files, ids=None, seconds=9.0)
    result = ExecResult(0, EndReason.EXIT, b"", 0, 0.0, 0, result=report.encode())
    return adapter.read(order, adapter.invoke(order), result)


def events(*outputs: str) -> str:
    lines = [{"Action": "output", "Package": "m/a", "Test": "TestX", "Output": text} for text in outputs]
    lines.append({"Action": "pass", "Package": "m/a", "Elapsed": 0.1})  # type: ignore[dict-item]
    return "m\n" + "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.mark.parametrize(
    ("outputs", "status"),
    [
        (["=== RUN   TestX\n", "torn --- PASS: TestX (0.00s)\n"], "passed"),
        (["torn --- FAIL: TestX (0.00s)\n"], "failed"),
        (["torn --- PASS: TestX (0.00s)\n", "torn --- FAIL: TestX (0.00s)\n"], "error"),
        (["--- about TestX\n"], "missing"),
    ],
)
def test_the_end_of_a_go_test_behind_something_printed(outputs, status):
    assert read(GoAdapter(), events(*outputs), "a").status("a::TestX") == status


def test_what_go_embeds_is_told_first_and_nowhere_else():
    built = f"\x02built {WORKDIR}/a/a_test.go\n\x02built {WORKDIR}/a/x.txt\n"
    report = events("\x02built later\n")
    run = read(GoAdapter(), report.replace("m\n", f"m\n{built}", 1), "a")
    assert run.compiled_in == {"a/a_test.go", "a/x.txt"} and run.finished


def test_a_package_that_go_cannot_build_is_a_file_error_and_no_forgery():
    run = read(GoAdapter(), "m\nFAIL\tm/a [build failed]\n", "a")
    assert run.file_errors.keys() == {"a"} and not run.forged and run.finished
    assert read(GoAdapter(), "m\nok\tm/a [build failed]\n", "a").forged


CARGO = """     Running tests/a.rs (target/debug/deps/a-16)

running 3 tests
test x ... raw ok
test y ... ok
test z ... greeting FAILED

successes:

---- x stdout ----
greeting
\x02observed 0 3139.

successes:
    x
    y

failures:

---- z stdout ----
failures:
    y

failures:
    z

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.36s
"""


def test_lines_of_cargo_that_the_work_has_torn():
    run = read(CargoAdapter(), CARGO, "tests/a.rs")
    assert {name: case.status for name, case in run.cases.items()} == {
        "tests/a.rs::x": "passed", "tests/a.rs::y": "passed", "tests/a.rs::z": "failed",
    }  # fmt: skip
    assert [hit.values for hit in run.observed["tests/a.rs::x"]] == [("19",)] and run.finished


def test_a_torn_line_that_two_lists_name_is_an_error():
    run = read(CargoAdapter(), CARGO.replace("failures:\n    y", "failures:\n    x"), "tests/a.rs")
    assert run.status("tests/a.rs::x") == "error"


FORGED = """     Running tests/a.rs (target/debug/deps/a-16)

running 2 tests
test x ... ok
test y ... ok
FAILED

failures:

---- y stdout ----
panicked

failures:
    y

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.36s
"""


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (FORGED, "names tests/a.rs::y"),
        (FORGED.replace("test x ... ok", "test x ... raw ok"), "names tests/a.rs::y"),
        (FORGED.replace("failures:\n    y\n", ""), "1 passed, 1 failed"),
        (FORGED.replace("FAILED. 1 passed; 1", "ok. 1 passed; 0"), "1 passed, 0 failed"),
    ],
    ids=["a list", "a list beside a torn line", "the result alone", "a result without failures"],
)
def test_a_line_of_cargo_that_its_end_contradicts_makes_the_report_unreadable(report, said):
    run = read(CargoAdapter(), report, "tests/a.rs")
    assert said in run.unreadable, run.unreadable
    prepared = PreparedSuite({}, {"x": "tests/a.rs::x"}, frozenset(), frozenset(), ())
    assert judge_run(["x"], prepared, run).outcome is Cause.REPORT_UNREADABLE


def test_what_tests_print_of_lists_contradicts_nothing():
    assert read(CargoAdapter(), CARGO, "tests/a.rs").unreadable == ""
    printed = CARGO.replace("greeting\n\x02", "failures:\n    x\n    nothing\n\x02")
    assert read(CargoAdapter(), printed, "tests/a.rs").unreadable == ""


def test_the_end_of_a_go_test_behind_something_printed_contradicts_an_event():
    """Go's reader before 1.20 takes the true end for output where the work has printed something in front of it."""
    ends = [{"Action": "pass", "Package": "m/a", "Test": "TestX", "Elapsed": 0.1}]
    told = events("--- PASS: TestX (0.00s)\n", "torn --- FAIL: TestX (0.00s)\n")
    head, _, rest = told.partition("\n")
    run = read(GoAdapter(), f"{head}\n{json.dumps(ends[0])}\n{rest}", "a")
    assert run.status("a::TestX") == "error" and run.forged


@pytest.mark.parametrize("ids", [None, ("a::TestX",), ("a::TestX", "a::TestLater")])
@pytest.mark.parametrize("end", ["pass", "fail"])
def test_no_test_passes_whose_go_program_fails_without_one_that_does(ids, end):
    """Where it ends in the midst of the tests, those that came before it keep what they are: others are missing."""
    lines = [
        {"Action": "pass", "Package": "m/a", "Test": "TestX"},
        {"Action": end, "Package": "m/a"},
        {"Action": "pass", "Package": "m/b", "Test": "TestY"},
        {"Action": "pass", "Package": "m/b"},
    ]
    report = "m\n" + "".join(f"{json.dumps(line)}\n" for line in lines)
    order = Order(files=("a", "b"), ids=ids, seconds=9.0)
    result = ExecResult(0, EndReason.EXIT, b"", 0, 0.0, 0, result=report.encode())
    run = GoAdapter().read(order, GoAdapter().invoke(order), result)
    fails = end == "fail" and (ids is None or len(ids) == 1)
    assert run.status("a::TestX") == ("failed" if fails else "passed")
    assert run.status("b::TestY") == "passed" and not run.forged


@pytest.mark.parametrize(
    ("line", "unit", "found"),
    [
        (f"{WORKDIR}/target/debug/deps/libgreet-1.rlib: src/lib.rs src/../tests/a.rs", False, {"src/lib.rs", "tests/a.rs"}),
        (f"target/debug/deps/a-1: tests/a.rs {WORKDIR}/tests/b\\ c.rs", False, set()),
        ("target/debug/deps/greet-1: src/main.rs tests/b\\ c.rs", False, {"src/main.rs", "tests/b c.rs"}),
        ("target/debug/deps/greet-1: src/lib.rs src/tests.rs", True, set()),
        ("target/debug/deps/libgreet-1.rmeta: src/lib.rs src/tests.rs", True, {"src/lib.rs", "src/tests.rs"}),
        ("nothing", False, set()),
    ],
)  # fmt: skip
def test_sources_of_what_cargo_builds(line, unit, found):
    assert sources_of(line, unit) == found


def test_only_work_that_passed_is_judged_by_what_it_is_compiled_from():
    passed = Judgement((), Cause.ALL_PASSED, "")
    assert judge_compiled(passed, ()) is passed
    found = judge_compiled(passed, ["tests/a.rs"])
    assert found.outcome is Cause.ADAPTIVE and "tests/a.rs" in str(found.findings)
    failed = Judgement((), Cause.TESTS_FAILED, "x")
    assert judge_compiled(failed, ["tests/a.rs"]) is failed
