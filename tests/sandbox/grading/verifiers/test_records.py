"""What the clean sandbox sends back is parsed strictly: it was produced beside code under test."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.base import EndReason, ExecResult
from sandbox.grading.adapters.base import Invocation, Order, started
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.canaries.insertion import PreparedSuite
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verifiers import calls
from sandbox.grading.verifiers.judging import judge_run


def ended(result=b"", *, exit_code=0, reason=EndReason.EXIT, output=b""):
    return ExecResult(exit_code, reason, output, len(output), 0.1, 0, result)


def record(index, body, turn=0):
    data = body.encode("utf-8", "backslashreplace")
    return b"%d %d %d\n%s" % (turn, index, len(data), data)


def number(n):
    return f"V {n}"


@given(
    st.dictionaries(st.tuples(st.integers(0, 1), st.integers(0, 999)), st.tuples(st.booleans(), st.text(max_size=30)))
)
def test_call_records_survive_any_text(expected):
    data = b"".join(record(i, f"V {t}" if good else f"E {t}", turn) for (turn, i), (good, t) in expected.items())
    found = calls.parse_records(data)
    assert found.keys() == expected.keys()
    for key, (good, text) in expected.items():
        if good:
            assert found[key] == calls.Answer(text, plain=True)
        else:
            assert found[key] == calls.Answer(error=text)


@given(st.binary(max_size=200))
def test_rubbish_never_raises(data):
    calls.parse_records(data)
    calls.parse_answer(data)
    calls.is_right(calls.parse_answer(b"V " + data), "1")
    PytestAdapter().read(ORDER, Invocation("", secret=""), ended(data))


def test_the_first_record_of_a_case_counts():
    data = record(0, number(1)) + record(0, number(2))
    assert calls.parse_records(data) == {(0, 0): calls.Answer("1", plain=True)}


def test_each_way_to_fail_a_case_has_its_status():
    cases = (("(1,)", "1"), ("(2,)", "2"), ("(3,)", "3"), ("(4,)", "4"))
    data = record(0, number(1)) + record(1, number(9)) + record(2, "E ValueError: no")
    assert [c.status for c in calls.compare(cases, ended(data))] == ["passed", "failed", "error", "missing"]
    late = calls.compare(cases, ended(data, exit_code=None, reason=EndReason.TIMEOUT))
    assert [c.status for c in late] == ["passed", "failed", "error", "timeout"]
    assert calls.compare(cases, ended(data, exit_code=-24))[3].status == "timeout"


def test_results_cut_by_the_descriptor_limit_do_not_pass():
    whole = record(0, number(12345))
    assert calls.parse_records(whole[:-1]) == {}


@pytest.mark.parametrize(
    ("plain", "text", "expected", "right"),
    [
        (True, "1", "1", True),
        (True, "True", "1", False),
        (True, "1.0", "1", False),
        (True, "-0.0", "0.0", False),
        (True, "[1]", "[1]", True),
        (True, "[1, 'a']", '[1,"a"]', True),
        (True, "(1,)", "[1]", False),
        (True, "{'b', 'a'}", "{'a', 'b'}", True),
        (True, "[{'b', '\\'a('}, -1e-07]", """[{"'a(", 'b'}, -1e-07]""", True),
        (True, "[{1: {'b', 'a'}}, set()]", "[{1: {'a', 'b'}}, set()]", True),
        (True, "{True}", "{1}", False),
        (True, "{1.0}", "{1}", False),
        (True, "{'a': None}", "{'a': None}", True),
        (True, "{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}", True),
        (True, "[{2: {'b': 1, 'a': 2}, 1: 0}]", "[{1: 0, 2: {'a': 2, 'b': 1}}]", True),
        (True, "{'b': 1, 'a': 3}", "{'a': 2, 'b': 1}", False),
        (True, "{'b': 1, 'a': 2.0}", "{'a': 2, 'b': 1}", False),
        (True, "{True: 1, 2: 2}", "{1: 1, 2: 2}", False),
        (True, "{'b': 1}", "{'a': 2, 'b': 1}", False),
        (False, "1", "1", False),
        (False, "Decimal('1')", "Decimal('1')", True),
        (True, "nan", "nan", True),
        (True, "{" + "[" * 5000, "{1}", False),
        (True, "{" + "-" * 5000 + "1}", "{1}", False),
        (True, "{1" + "()" * 5000 + "}", "{1}", False),
        (True, "{0" + "+1j" * 5000 + "}", "{1}", False),
        (True, "x" * (calls.RESULT_CHARS + 1), "x" * (calls.RESULT_CHARS + 1), False),
    ],
)
def test_a_result_is_right_by_value_and_type(plain, text, expected, right):
    assert calls.is_right(calls.Answer(text, plain), expected) is right


def test_some_gradings_ask_again():
    drawn = [calls.drawn_orders(24, random.Random(seed)) for seed in range(200)]
    assert {len(orders) for orders in drawn} == {1, 2}
    assert all(sorted(orders[0]) == list(range(24)) for orders in drawn)
    assert all(len(set(orders[1])) == calls.AGAIN for orders in drawn if len(orders) == 2)


def test_another_result_in_another_order_is_adaptive():
    cases = (("(1,)", "1"), ("(2,)", "2"))
    data = record(0, number(1)) + record(1, number(2))
    orders = ([0, 1], [1])
    again = calls.judge(cases, ended(data + record(1, number(2), 1)), orders)
    assert again.outcome is Cause.ALL_PASSED
    for other in (b"", record(1, number(3), 1), record(1, "E ValueError", 1)):
        assert calls.judge(cases, ended(data + other), orders).outcome is Cause.ADAPTIVE


WORD = "abcd"
ORDER = Order(files=("t.py",), ids=("t.py::a",), seconds=1.0)


def line(kind, **body):
    return (WORD + json.dumps({"kind": kind, **body}) + "\n").encode()


def phases(test_id, **outcomes):
    steps = {"setup": "passed", "call": "passed", "teardown": "passed", **outcomes}
    return b"".join(line("test", id=test_id, when=w, outcome=o, message="", seconds=0.1) for w, o in steps.items() if o)


DONE = line("done", status=0)
FAILED = line("done", status=1)


def read(data, **how):
    return PytestAdapter().read(ORDER, Invocation("", secret=WORD), ended(data, **how))


def judged(data, test_id="t.py::a", must_fail=(), **how):
    prepared = PreparedSuite({}, {test_id: test_id}, frozenset(must_fail), frozenset(), ())
    return judge_run([test_id], prepared, read(data, **how))


def status(data, **how):
    return judged(data, **how).cases[0].status


def test_a_test_passes_only_with_all_phases_and_the_end_of_the_run():
    assert status(phases("t.py::a") + DONE) == "passed"
    assert status(phases("t.py::a")) == "error"
    assert status(phases("t.py::a", teardown=None) + DONE) == "missing"
    assert status(phases("t.py::a", call="failed") + DONE) == "failed"
    assert status(phases("t.py::a", setup="failed", call=None) + DONE) == "error"
    assert status(phases("t.py::a", call="skipped") + DONE) == "skipped"
    assert status(phases("t.py::a", call="xfail") + DONE) == "skipped"
    assert status(DONE) == "missing"
    assert status(phases("t.py::other") + DONE) == "missing"
    assert status(b"", exit_code=None, reason=EndReason.TIMEOUT) == "timeout"
    assert status(line("file", id="t.py", message="SyntaxError") + DONE) == "error"


def test_records_without_the_word_and_second_reports_do_not_count():
    forged = phases("t.py::a").replace(WORD.encode(), b"zzzz")
    assert status(forged + DONE) == "missing"
    assert status(phases("t.py::a") + phases("t.py::a") + DONE) == "error"
    assert status(phases("t.py::a", call="failed") + phases("t.py::a") + DONE) == "error"


@pytest.mark.parametrize(
    ("data", "how", "outcome", "rules"),
    [
        (phases("t.py::a") + DONE, {}, Cause.ALL_PASSED, []),
        (phases("t.py::a") + phases("t.py::c", call="failed") + FAILED, {"exit_code": 1}, Cause.ALL_PASSED, []),
        (phases("t.py::a") + phases("t.py::c") + DONE, {}, Cause.TAMPERED, ["canary-passed"]),
        (phases("t.py::a") + DONE, {"lost": True}, Cause.TAMPERED, ["canary-passed"]),
        (phases("t.py::a") + phases("t.py::c", call="skipped") + DONE, {}, Cause.TAMPERED, ["canary-passed"]),
        (phases("t.py::a", call="failed") + phases("t.py::c") + FAILED, {"exit_code": 1}, Cause.TESTS_FAILED, []),
        (phases("t.py::a") + b"rubbish\n" + DONE, {}, Cause.TAMPERED, ["forged-report"]),
        (phases("t.py::a") + DONE, {"exit_code": 3}, Cause.TAMPERED, ["forged-report"]),
        (phases("t.py::a", call="skipped") + DONE, {}, Cause.TESTS_SKIPPED, ["test-skipped"]),
        (phases("t.py::a"), {}, Cause.TESTS_FAILED, ["run-cut-short"]),
        (b"", {}, Cause.NO_TEST_RAN, ["run-cut-short"]),
        (b"", {"exit_code": -24}, Cause.TIME_OUT, []),
        (b"", {"exit_code": None, "reason": EndReason.MEMORY}, Cause.OUT_OF_MEMORY, []),
    ],
)
def test_each_ending_has_its_row_of_the_table(data, how, outcome, rules):
    how = dict(how)
    must_fail = ("t.py::c",) if b"t.py::c" in data or how.pop("lost", False) else ()
    found = judged(data, must_fail=must_fail, **how)
    assert found.outcome is outcome
    assert [finding.rule for finding in found.findings] == rules


def test_a_report_that_did_not_fit_says_so() -> None:
    run = started(ExecResult(0, EndReason.EXIT, b"7,512 passed", 12, 0.1, 0, overflowed=True))
    assert "shorter names" in run.ending and run.ending.endswith("7,512 passed") and not run.finished
