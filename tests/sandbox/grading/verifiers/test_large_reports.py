"""Reports as long as they may be: what nobody reads costs little, and what a runner wrote is found among it."""

from __future__ import annotations

import json
import threading

import pytest

from sandbox.backends.base import EndReason, ExecResult
from sandbox.grading.adapters import ADAPTERS, base
from sandbox.grading.adapters.base import MAX_FORGED, Order, TestRun, json_lines
from sandbox.grading.adapters.go import GoAdapter
from sandbox.grading.adapters.jest import split_observed
from sandbox.grading.verifiers import suite

MEGABYTES = 8 << 20


def read(name: str, report: bytes, *files: str) -> TestRun:
    adapter = ADAPTERS[name]
    order = Order(files=files, ids=None, seconds=9.0, sites={1: "a::b"})
    invocation = adapter.invoke(order)
    report = report.replace(b"WORD", invocation.secret.encode())
    return base.read_report(adapter, order, invocation, ExecResult(0, EndReason.EXIT, b"", 0, 0.0, 0, result=report))


def test_of_lines_that_are_no_records_few_are_looked_at() -> None:
    data = b"1\n" * 200_000 + b'w{"a":1}\n' + b"\n" * 1000 + b"w2\n" * 100_000 + b'w{"b":2}'
    found = list(json_lines(data, b"w"))
    assert len(found) == MAX_FORGED + 2 and [one for _, one in found if one is not None] == [{"a": 1}, {"b": 2}]


def test_lines_are_told_as_they_stand() -> None:
    assert list(json_lines(b'\n\na\n{"a":1}\n{]\n\nb')) == [
        (b"a", None),
        (b'{"a":1}', {"a": 1}),
        (b"{]", None),
        (b"b", None),
    ]
    assert list(json_lines(b"")) == [] == list(json_lines(b"\n"))


def test_records_without_end_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_RECORDS", 1000)
    assert sum(1 for _ in json_lines(b"{}\n" * 3000)) == 1001
    run = read("node", b"{}\n" * 3000 + b'{"kind":"done"}\n', "a.js")
    assert len(run.forged) == 1 and not run.finished


@pytest.mark.parametrize("name", ["pytest", "unittest", "node"])
@pytest.mark.parametrize("junk", [b"1\n", b"    a\n", b"\x02\n", b"x "])
def test_what_a_runner_wrote_is_found_among_junk(name: str, junk: bytes) -> None:
    junk *= MEGABYTES // len(junk)
    done = b'WORD{"kind":"done","status":0}' if name != "node" else b'{"kind":"done"}'
    run = read(name, junk + b"\n" + done + b"\n" + junk, "a")
    assert run.finished and len(run.forged) <= MAX_FORGED and all(len(line) < 500 for line in run.forged)
    assert run.forged or (name == "node" and junk.startswith(b"\x02\n"))


def test_a_noisy_suite_of_cargo_is_read_to_its_end() -> None:
    noise = b"1\n" * (MEGABYTES // 2)
    report = (
        b"     Running tests/a.rs (target/debug/deps/a-16)\n\nrunning 2 tests\n" + noise + b"test x ... ok\ntest y ... FAILED\n"
        b"\nsuccesses:\n\n---- x stdout ----\n" + noise + b"\x02observed 0 3139.\n"
        + noise + b"\n\nsuccesses:\n    x\n\nfailures:\n\n"
        b"---- y stdout ----\nit panicked\n" + noise + b"\nfailures:\n    y\n\n"
        b"test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.36s\n"
    )  # fmt: skip
    run = read("cargo", report, "tests/a.rs")
    assert run.finished and run.status("tests/a.rs::x") == "passed" and not run.unreadable
    assert [hit.values for hit in run.observed["tests/a.rs::x"]] == [("19",)]
    assert run.cases["tests/a.rs::y"].message.startswith("it panicked\n1\n")


@pytest.mark.parametrize("unit", [b"test a ... ok\n", b"    a\n", b"error\n", b"\x02\n", b"t\n", b" "])
def test_lines_of_cargo_without_end(unit: bytes) -> None:
    head = b"     Running tests/a.rs (x)\ntest x ... ok\nfailures:\n"
    run = read("cargo", head + unit * (MEGABYTES // len(unit)), "tests/a.rs")
    assert bool(run.unreadable) == (unit == b"test a ... ok\n") and not run.finished and len(run.cases) <= 2


def test_errors_of_a_build_are_told() -> None:
    run = read("cargo", b"warning: x\nerror[E0425]: cannot find\n  --> src\nerror: could not compile\n", "tests/a.rs")
    assert run.file_errors == {"tests/a.rs": "error[E0425]: cannot find\nerror: could not compile"}


def test_blocks_of_cargo_end_between_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = b"     Running tests/a.rs (x)\ntest x ... ok\ntest y ... ok\n---- x stdout ----\nz\n"
    report = tests + b"test result: ok. 2 passed; 0 failed; \n"
    for size in range(1, 40):
        monkeypatch.setattr("sandbox.grading.adapters.cargo.BLOCK", size)
        run = read("cargo", report, "tests/a.rs")
        assert run.finished and len(run.cases) == 2


def test_outputs_of_go_that_nearly_end_a_test() -> None:
    def event(output: str) -> bytes:
        return json.dumps({"Action": "output", "Package": "m/a", "Test": "T", "Output": output}).encode() + b"\n"

    run = read("go", b"m\n" + event("\t" * 1990 + "--- ") * 2000 + event("\t--- PASS: T (0.00s)\n"), "a")
    assert run.status("a::T") == "passed"
    assert read("go", b"m\n" + event("  --- PASS: T (0.00s)\n"), "a").status("a::T") == "missing"


def test_packages_of_go_without_end() -> None:
    tests = b"".join(b'{"Action":"fail","Package":"m/%d","Test":"T"}\n' % i for i in range(20_000))
    ends = b"".join(
        b'{"Action":"pass","Package":"m/%d"}\n{"Action":"fail","Package":"m/x%d"}\n' % (i, i) for i in range(20_000)
    )
    run = read("go", b"m\n" + tests + ends, "0")
    assert len(run.forged) == MAX_FORGED and len(run.file_errors) == 20_000 and run.finished


def test_files_that_go_embeds_without_end() -> None:
    run = read("go", b"m\n" + b"\x02built a\n" * (MEGABYTES // 9), "a")
    assert run.compiled_in == {"a"}


def test_assertions_report_no_more_values_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_NODES", 30_000)
    values = b",".join([b'{"i":"5"}'] * 2000)
    run = read("node", (b'{"kind":"seen","site":1,"values":[' + values + b"]}\n") * 12, "a")
    assert len(run.observed["a::b"]) == 7


def test_reports_of_jest_among_junk() -> None:
    document = b'{"testResults":[]}'
    seen, rest = split_observed(b'\x02{"site":1}\n\x02{"site":2}\n' + document)
    assert [record["site"] for record in seen] == [1, 2] and rest == document
    assert read("jest", b'\x02{"kind":"seen","site":1,"values":[]}\n' + document, "a").finished
    for junk in (b"1\n", b"\x02\n", b"[],"):
        run = read("jest", b"[" + junk * (MEGABYTES // len(junk)) + b"[]]", "a")
        assert not run.finished and run.forged


def test_elements_of_a_junit_report_without_end() -> None:
    run = read("junit", b"<a>" + b"<b/>" * (MEGABYTES // 4) + b"</a>", "a")
    assert not run.finished and "elements" in run.forged[0]
    run = read(
        "junit", b"<a><testcase name='x'>" + b"<error message='it is wrong'/>" * 100_000 + b"</testcase></a>", "a"
    )
    assert run.status("::x") == "error" and run.finished


async def test_reports_are_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sandbox:
        async def exec(self, command: str, **options: object) -> ExecResult:
            return ExecResult(0, EndReason.EXIT, b"", 0, 0.0, 0, result=b"m\n")

    threads = []
    kept = GoAdapter.read
    monkeypatch.setattr(GoAdapter, "read", lambda *given: threads.append(threading.get_ident()) or kept(*given))
    await suite.collect(Sandbox(), GoAdapter(), Order(files=("a",), ids=None, seconds=1.0))  # type: ignore[arg-type]
    assert threads and threads != [threading.get_ident()]
