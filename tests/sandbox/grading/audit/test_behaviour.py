"""Measures of behaviour, and alarms when they move."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.grading.audit import Attempt, Step
from sandbox.grading.audit.behaviour import MEASURES, measure
from sandbox.grading.audit.drift import WATCHES, WINDOW, alarms
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult
from tests.sandbox.grading.audit.make import FIX, added, attempt, edit, finish, read, sh


def test_measures_of_an_ordinary_attempt() -> None:
    made = measure(attempt(read("a.py"), edit("a.py", "x", "y"), sh("pytest -q"), finish(), left=[FIX]))
    assert made["behaviour/turns"] == 4 and made["behaviour/edits"] == 1 and made["behaviour/patched"] == 1
    assert made["behaviour/terminal_share"] == made["behaviour/top_tool_share"] == pytest.approx(1 / 3)
    assert made["behaviour/questions"] == made["behaviour/malformed_share"] == made["behaviour/comment_share"] == 0


def test_reasoning_in_comments_shows() -> None:
    thinking = "\n".join(
        f"# step {i}: first I look at the list and then I think about the next thing" for i in range(20)
    )
    made = measure(attempt(left=[added(thinking)]))
    assert made["behaviour/comment_share"] > 0.9 and made["behaviour/comment_chars"] > 1_000
    in_text = measure(attempt(left=[added(f"TEXT = '''{thinking}'''")]))
    assert in_text["behaviour/comment_share"] == 0, "text in a string is no comment"


@pytest.mark.parametrize(
    ("text", "asks"),
    [("Which file do you mean?", 1.0), ("Could you tell me more? I stop here.", 1.0), ("Please clarify the task.", 1.0),
     ("Done: scale multiplies now.", 0.0), ("", 0.0)],
)  # fmt: skip
def test_clarifying_questions(text: str, asks: float) -> None:
    assert measure(attempt(sh("ls"), says=text))["behaviour/questions"] == asks


def test_malformed_calls_count_with_and_without_a_call() -> None:
    bad = ToolResult(call_id="", output="error", error=ToolError(kind=ToolErrorKind.MALFORMED_CALL, message="x"))
    fine = Step("", (ToolCall(id="a", name="grep"),), (ToolResult(call_id="a", output=""),))
    made = measure(Attempt("", (fine, Step("{", (), (bad,)))))
    assert made["behaviour/malformed_share"] == 0.5


def test_every_measure_has_a_meaning() -> None:
    assert set(measure(Attempt("", ()))) == set(MEASURES)
    assert {watch.metric for watch in WATCHES} <= set(MEASURES)


def series(values: list[float]) -> list[tuple[int, float]]:
    return list(enumerate(values, 1))


def test_a_move_is_told_once_and_the_way_back_again() -> None:
    low, high = [0.3] * 8, [0.9] * 10
    (alarm,) = alarms({"behaviour/terminal_share": series(low + high)})
    assert alarm.watch.rule == "drift-terminal" and 9 < alarm.step <= 8 + WINDOW
    assert alarm.finding.severity == "medium" and "behaviour/terminal_share went from 0.3 to" in alarm.finding.summary
    assert alarms({"behaviour/terminal_share": series(high + low)}) == [], "less of it is no collapse"
    turns = alarms({"behaviour/turns": series([4.0] * 7 + [12.0] * 12 + [4.0] * 8)})
    assert [a.watch.rule for a in turns] == ["drift-turns", "drift-turns"]
    assert turns[0].after > turns[0].before and turns[1].after < turns[1].before


def test_noise_and_slow_honest_change_are_quiet() -> None:
    draw = random.Random(3)
    noisy = [0.4 + draw.uniform(-0.15, 0.15) for _ in range(200)]
    assert alarms({"behaviour/terminal_share": series(noisy)}) == []
    assert alarms({"behaviour/turns": series([4.0 + draw.uniform(-0.7, 0.7) for _ in range(200)])}) == []
    assert alarms({"behaviour/comment_share": series([0.01] * 9)}) == [], "too few steps to say anything"


def test_a_creeping_change_is_told() -> None:
    creeping = [0.3 + 0.01 * step for step in range(60)]
    assert [a.watch.rule for a in alarms({"behaviour/terminal_share": series(creeping)})].count("drift-terminal") >= 2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 59))
@settings(max_examples=100, deadline=None)
def test_more_steps_never_change_what_was_told(values: list[float], cut: int) -> None:
    """Alarms of a prefix are a prefix of the alarms: asking at every step and asking once at the end agree."""
    whole = alarms({"behaviour/comment_share": series(values)})
    part = alarms({"behaviour/comment_share": series(values[:cut])})
    assert whole[: len(part)] == part
