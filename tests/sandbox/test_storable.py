"""Whatever a policy, its tests or a judge write can be stored and read back: text, JSON values, calls, trajectories."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.backends.base import EndReason, ExecResult
from sandbox.grading.adapters import ADAPTERS
from sandbox.grading.adapters.base import Order, read_report
from sandbox.grading.canaries.insertion import PreparedSuite
from sandbox.grading.verdict.findings import Rule, finding
from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, Verdict
from sandbox.grading.verdict.report import CaseResult, Report
from sandbox.grading.verifiers.judging import judge_run
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.storable import MAX_DEPTH, JSONRefused, parse_json, storable_json, storable_text

TEXT = st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(["\ud800", "a\0b", "\udfff\0"])
"""With NUL and lone surrogates, which JSON can spell."""
NUMBERS = st.integers() | st.floats() | st.sampled_from([1 << 80, float("nan"), float("inf")])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)


def nested(depth: int) -> object:
    value: object = "deep"
    for _ in range(depth):
        value = [value]
    return value


@given(TEXT)
def test_text_reaches_utf_8_and_postgres(text: str) -> None:
    made = storable_text(text)
    made.encode()
    assert "\0" not in made
    assert storable_text(made) == made and len(made) == len(text)


@given(VALUES | st.integers(1, 3000).map(nested))
def test_a_json_value_survives_every_serialiser(value: object) -> None:
    made, problem = storable_json(value)
    assert json.loads(json.dumps(made, allow_nan=False).encode()) == made
    assert storable_json(made) == (made, "")
    assert problem or json.dumps(made) == json.dumps(value)


@pytest.mark.parametrize("text", ["[" * 900 + "]" * 900, "[" * 10**6, "NaN", "1" * 5000, "[1e999", '{"a": -Infinity}'])
def test_json_that_nothing_could_hold_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(JSONRefused):
        parse_json(text)


def test_json_is_bounded_where_it_is_parsed() -> None:
    assert parse_json(json.dumps(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(JSONRefused, match="nested deeper"):
        parse_json(json.dumps(nested(MAX_DEPTH + 1)))
    with pytest.raises(JSONRefused, match="at most 10"):
        parse_json('"0123456789"', max_chars=10)


@given(TEXT, TEXT, st.dictionaries(TEXT, VALUES, max_size=4))
def test_a_call_with_any_arguments_is_stored_and_names_what_was_wrong(name: str, id: str, arguments: dict) -> None:
    call = ToolCall(id=id, name=name, arguments=arguments)
    assert ToolCall.model_validate_json(call.model_dump_json()) == call
    _, problem = storable_json(arguments)
    assert bool(call.refused) == bool(problem)


@given(TEXT, TEXT)
def test_results_and_reports_hold_any_text(said: str, other: str) -> None:
    error = ToolError(kind=ToolErrorKind.NOT_FOUND, message=other)
    result = ToolResult(call_id=other, output=said, error=error)
    report = Report(
        verdict=Verdict.FAILED,
        outcome=Cause.TESTS_FAILED,
        cases=(CaseResult(id=other, status="failed", message=said),),
        cause=said,
        dropped=(other,),
        findings=(finding(Rule.ODD_PATH, said),),
    )
    for model in (result, report):
        assert type(model).model_validate_json(model.model_dump_json()) == model
    assert "\0" not in report.model_dump_json() and "\\u0000" not in report.model_dump_json()


# --- reports ----------------------------------------------------------------------------------------------------

ORDER = Order(files=("test_a.py",), ids=("test_a.py::test_one",), seconds=1.0, report="report.xml")
PREPARED = PreparedSuite({}, {"test_a.py::test_one": "test_a.py::test_one"}, frozenset(), frozenset(), ())
KEYS = ("kind", "id", "when", "status", "outcome", "message", "seconds", "file", "path", "Package", "Test", "Action",
        "Output", "Elapsed", "testResults", "assertionResults", "name", "title", "ancestorTitles", "failureMessages",
        "calls", "left_out")  # fmt: skip
WORDS = ("test", "done", "call", "setup", "teardown", "passed", "failed", "pass", "output", "file", "calls", "sampled",
         "test_a.py", "test_a.py::test_one", "test_one")  # fmt: skip
RECORDS = st.lists(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WORDS) | VALUES, max_size=8), max_size=5)


def came_back(result: bytes) -> ExecResult:
    return ExecResult(0, EndReason.EXIT, b"", 0, 0.1, 0, result)


@pytest.mark.parametrize("name", ADAPTERS)
@settings(max_examples=30)
@given(records=RECORDS, junk=st.binary(max_size=30))
def test_no_reader_of_reports_raises(name: str, records: list[dict[str, object]], junk: bytes) -> None:
    adapter = ADAPTERS[name]
    invocation = adapter.invoke(ORDER)
    lines = [invocation.secret + json.dumps(record) for record in records]
    for data in ("\n".join(lines).encode() + junk, json.dumps(records[0] if records else {}).encode()):
        run = adapter.read(ORDER, invocation, came_back(data))
        judged = judge_run(ORDER.ids or (), PREPARED, run)
        Report(verdict=OUTCOMES[judged.outcome].verdict, outcome=judged.outcome, cases=judged.cases).model_dump_json()


def test_a_record_of_the_wrong_type_is_one_that_did_not_pass() -> None:
    adapter = ADAPTERS["pytest"]
    invocation = adapter.invoke(ORDER)
    record = {"kind": "test", "id": "test_a.py::test_one", "when": [], "outcome": "passed"}
    data = (invocation.secret + json.dumps(record)).encode()
    judged = judge_run(ORDER.ids or (), PREPARED, adapter.read(ORDER, invocation, came_back(data)))
    assert OUTCOMES[judged.outcome].verdict is Verdict.FAILED


def test_a_reader_that_raises_all_the_same_gives_a_failure() -> None:
    class Broken:
        name, configuration = "broken", frozenset[str]()

        def invoke(self, order: Order):
            return ADAPTERS["pytest"].invoke(order)

        def read(self, order: Order, invocation, result: ExecResult):
            raise TypeError("unhashable type: 'list'")

    broken = Broken()
    run = read_report(broken, ORDER, broken.invoke(ORDER), came_back(b"x"))
    judged = judge_run(ORDER.ids or (), PREPARED, run)
    assert judged.outcome is Cause.REPORT_UNREADABLE and OUTCOMES[judged.outcome].verdict is Verdict.FAILED
    assert "unhashable" in judged.cause
