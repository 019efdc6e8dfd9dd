"""What the clean sandbox sends back is parsed strictly: it was produced beside code under test."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.base import EndReason, ExecResult
from sandbox.grading import calls, pytest_run


def ended(result=b"", *, exit_code=0, reason=EndReason.EXIT, output=b""):
    return ExecResult(exit_code, reason, output, len(output), 0.1, 0, result)


def record(index, kind, text):
    return b"%d %s %d\n%s" % (index, kind, len(text.encode()), text.encode())


@given(st.dictionaries(st.integers(0, 999), st.tuples(st.sampled_from(["R", "E"]), st.text(max_size=30))))
def test_call_records_survive_any_text(expected):
    data = b"".join(record(i, kind.encode(), text) for i, (kind, text) in expected.items())
    assert calls.parse_records(data) == expected


@given(st.binary(max_size=200))
def test_rubbish_never_raises(data):
    calls.parse_records(data)
    pytest_run.parse("word", ended(data))


def test_the_first_record_of_a_case_counts():
    data = record(0, b"R", "1") + record(0, b"R", "2")
    assert calls.parse_records(data) == {0: ("R", "1")}


def test_each_way_to_fail_a_case_has_its_status():
    cases = (("(1,)", "1"), ("(2,)", "2"), ("(3,)", "3"), ("(4,)", "4"))
    data = record(0, b"R", "1") + record(1, b"R", "9") + record(2, b"E", "ValueError: no")
    assert [c.status for c in calls.judge(cases, ended(data))] == ["passed", "failed", "error", "missing"]
    late = calls.judge(cases, ended(data, exit_code=None, reason=EndReason.TIMEOUT))
    assert [c.status for c in late] == ["passed", "failed", "error", "timeout"]
    assert calls.judge(cases, ended(data, exit_code=-24))[3].status == "timeout"


def test_results_cut_by_the_descriptor_limit_do_not_pass():
    whole = record(0, b"R", "12345")
    assert calls.parse_records(whole[:-1]) == {}


WORD = "abcd"


def line(kind, **body):
    return (WORD + kind + json.dumps(body) + "\n").encode()


def phases(test_id, **outcomes):
    steps = {"setup": "passed", "call": "passed", "teardown": "passed", **outcomes}
    return b"".join(line("T", id=test_id, when=w, outcome=o, message="", seconds=0.1) for w, o in steps.items() if o)


DONE = line("D", status=0)


def status(data, test_id="t.py::a", **how):
    (case,) = pytest_run.judge([test_id], pytest_run.parse(WORD, ended(data, **how)))
    return case.status


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
    assert status(line("C", id="t.py", message="SyntaxError") + DONE) == "error"


def test_records_without_the_word_and_second_reports_do_not_count():
    forged = phases("t.py::a").replace(WORD.encode(), b"zzzz")
    assert status(forged + DONE) == "missing"
    assert status(phases("t.py::a") + phases("t.py::a") + DONE) == "error"
    assert status(phases("t.py::a", call="failed") + phases("t.py::a") + DONE) == "error"
