"""A tool has one colour in every rollout and on every page, and a summary has one that no tool has."""

from __future__ import annotations

import re

from composer_web.env import REPOSITORY
from composer_web.rollouts.trajectory.overview import overview
from composer_web.rollouts.trajectory.tool_colours import colour_of
from composer_web.rollouts.trajectory.trajectory_store import TurnFacts
from composer_web.rollouts.trajectory.transcript import view
from sandbox.harness.types import ToolCall
from trainer.types import Turn

STYLE = REPOSITORY / "static" / "css" / "trajectory.css"


def turn(index: int, tool: str) -> Turn:
    call = ToolCall(id=f"c{index}", name=tool, arguments={})
    return Turn(index=index, text="", token_start=0, token_end=1, calls=(call,))


def strip(*tools: str) -> dict[str, int]:
    """Colour of each tool in the strip of a rollout that calls these, one a turn."""
    drawn = overview([TurnFacts(tools=(tool,)) for tool in tools], ())
    return dict(zip(drawn["tools"], drawn["colours"], strict=True))


def test_the_order_and_number_of_tools_change_no_colour() -> None:
    tools = ("grep", "read_file", "edit_file", "run_terminal_cmd", "house_tool", "finish")
    every = strip(*tools)
    assert strip(*reversed(tools)) == every
    for tool in tools:
        assert strip(tool) == {tool: every[tool]}
        assert strip("other_tool", tool)[tool] == every[tool]
        (call,) = view(turn(0, tool)).calls
        assert call.colour == every[tool], "the transcript's colour is the strip's"


def test_tools_of_one_purpose_share_a_colour_and_other_purposes_have_others() -> None:
    assert colour_of("read_file") == colour_of("list_dir")
    assert colour_of("grep") == colour_of("codebase_search")
    assert len({colour_of(name) for name in ("read_file", "edit_file", "grep", "run_terminal_cmd", "read_lints")}) == 5


def test_a_tool_of_a_house_keeps_its_colour_from_process_to_process() -> None:
    assert [colour_of(name) for name in ("house_tool", "terminal", "lookup")] == [2, 2, 4]


def test_a_summary_has_a_colour_of_its_own() -> None:
    found = dict(re.findall(r"--(tool-\d|summary): var\((--[\w-]+)\)", STYLE.read_text()))
    tools = {name: value for name, value in found.items() if name != "summary"}
    assert sorted(tools) == [f"tool-{number}" for number in range(1, 7)]
    assert len(set(tools.values())) == len(tools)
    assert found["summary"] not in tools.values()
    assert not {colour_of(name) for name in map("tool{}".format, range(100))} - set(range(1, 7))
