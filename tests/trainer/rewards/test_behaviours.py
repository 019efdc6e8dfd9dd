"""Auxiliary rewards on trajectories built by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from tests.trainer.rollouts.make import trajectory
from trainer.config import BehaviourConfig, RewardConfig
from trainer.rewards import score
from trainer.rewards.behaviours.style import FAULTS
from trainer.types import RewardPart, Trajectory, Turn


def turn(*calls: tuple[str, dict[str, Any]], text: str = "", outputs: dict[int, Any] | None = None) -> Turn:
    """Calls with empty outputs; `outputs` maps a call's index to its output or its ToolErrorKind."""
    made = tuple(ToolCall(id=str(i), name=name, arguments=arguments) for i, (name, arguments) in enumerate(calls))
    results = []
    for index, call in enumerate(made):
        said = (outputs or {}).get(index, "")
        error = ToolError(kind=said, message="no") if isinstance(said, ToolErrorKind) else None
        results.append(ToolResult(call_id=call.id, output="" if error else said, error=error))
    return Turn(index=0, text=text, token_start=3, token_end=4, calls=made, results=tuple(results))


def part(name: str, *turns: Turn, patch: str = "") -> RewardPart:
    made: Trajectory = trajectory(stop=StopReason.FINISHED).model_copy(update={"turns": turns, "patch": patch})
    scored = score(made, RewardConfig(behaviour=BehaviourConfig(**{name: 0.25})))
    found = {p.name: p for p in scored.reward_parts}
    assert scored.reward == pytest.approx(1.0 + found[name].value * 0.25)
    assert -1.0 <= found[name].value <= 0.0
    return found[name]


def todos(*statuses: str) -> tuple[str, dict[str, Any]]:
    return "todo_write", {"todos": [{"content": f"step {i}", "status": s} for i, s in enumerate(statuses)]}


def test_all_are_off_by_default():
    assert [p.name for p in score(trajectory(), RewardConfig()).reward_parts] == ["tests"]


def test_unfinished_todos_are_counted_in_the_last_list():
    assert part("unfinished_todos").value == 0.0
    assert part("unfinished_todos", turn(todos("pending", "pending"))).value == -1.0
    assert part("unfinished_todos", turn(todos("pending", "pending")), turn(todos("done", "in_progress"))).value == -0.5
    assert part("unfinished_todos", turn(todos("pending")), turn(todos("done"))).value == 0.0
    refused = turn(todos("done"), outputs={0: ToolErrorKind.INVALID_ARGUMENTS})
    assert part("unfinished_todos", turn(todos("pending")), refused).value == -1.0
    cleared = part("unfinished_todos", turn(todos("pending")), turn(todos()))
    assert cleared.value == 0.0


def test_poor_calls_fail_by_the_policys_doing_or_repeat_what_was_answered():
    look = ("read_file", {"path": "a.py"})
    assert part("poor_calls").value == 0.0
    assert part("poor_calls", turn(look), turn(("grep", {"pattern": "x"}))).value == 0.0
    assert part("poor_calls", turn(look, outputs={0: ToolErrorKind.NOT_FOUND})).value == -1.0
    assert part("poor_calls", turn(look, outputs={0: ToolErrorKind.TIMEOUT})).value == 0.0
    again = part("poor_calls", turn(look, outputs={0: "text"}), turn(look, outputs={0: "text"}))
    assert (again.value, again.detail) == (-0.5, {"calls": 2, "failed": 0, "repeated": 1})
    assert part("poor_calls", turn(look, outputs={0: "old"}), turn(look, outputs={0: "new"})).value == 0.0
    malformed = Turn(
        index=0,
        text="{",
        token_start=3,
        token_end=4,
        results=(ToolResult(call_id="", output="", error=ToolError(kind=ToolErrorKind.MALFORMED_CALL, message="")),),
    )
    assert part("poor_calls", turn(look), malformed).value == -0.5


def patch(*lines: str, path: str = "a.py") -> str:
    body = "".join(f"+{line}\n" for line in lines)
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("x = 1" + " + 1" * 40, "too long"),
        ("x = 1  ", "trailing space"),
        ("  \tx = 1", "mixed indentation"),
        ("    print('debug', x)", "debug output"),
        ("    breakpoint()", "debug output"),
        ("except:", "swallowed error"),
        ("except Exception: pass", "swallowed error"),
        ("# TODO: mend", "left over"),
    ],
)
def test_style_names_each_fault(line, fault):
    found = part("style", patch=patch("def f():", line))
    assert (found.value, found.detail) == (-0.5, {"lines": 2, fault: 1})
    assert fault in FAULTS


def test_style_leaves_plain_code_and_other_files_alone():
    assert part("style", patch=patch("def f(x):", '    """What it does."""', "    return x + 1")).value == 0.0
    assert part("style", patch=patch("some text  ", path="notes.md")).value == 0.0
    assert part("style").value == 0.0
    thinking = patch(*[f"# and then I thought {i}" for i in range(10)])
    assert part("style", patch=thinking).detail["thinking in comments"] == 2


@pytest.mark.parametrize(
    ("last", "fault"),
    [
        (turn(("finish", {"summary": "Mended the rounding in total() and ran the tests."})), None),
        (turn(text="Mended the rounding in total() and ran the tests."), None),
        (turn(("finish", {})), "missing"),
        (turn(("grep", {"pattern": "x"}), text="Mended the rounding in total()."), "missing"),
        (turn(("finish", {"summary": "word " * 400})), "too long"),
        (turn(text="I changed total(). Should I also run the tests?"), "asks instead of ending"),
    ],
)
def test_communication_judges_the_closing_message(last, fault):
    found = part("communication", turn(("grep", {"pattern": "y"})), last)
    assert (found.value, found.detail.get("fault")) == (-1.0 if fault else 0.0, fault)
