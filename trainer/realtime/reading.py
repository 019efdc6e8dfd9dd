"""What one turn of a session did, as far as rewards and guards care: edited, asked, or wrote a call that does not work.

Published failure: malformed tool calls were thrown away before training, and the policy learned to write them when it expected to
fail. So what is broken here is a fact of the turn that is recorded, and never a reason to leave the turn out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sandbox.harness.types import ToolCall

EDIT_TOOLS = ("edit_file", "write_file", "delete_file", "apply_patch", "str_replace_based_edit_tool")


class TurnFacts(BaseModel):
    """`malformed` says why a call is broken; empty when none is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int = Field(default=0, ge=0)
    edits: int = Field(default=0, ge=0)
    question: bool = False
    """The turn ends by asking the user, and does nothing."""
    malformed: str = ""


def facts_of(
    *,
    text: str,
    calls: Sequence[ToolCall],
    error: str | None,
    tools: Sequence[Mapping[str, Any]],
    edit_tools: Sequence[str] = EDIT_TOOLS,
) -> TurnFacts:
    """`tools` are the function schemas that the turn was offered; `error` says why a call that was meant does not parse."""
    broken = error or next((why for call in calls if (why := _misfit(call, tools))), "")
    return TurnFacts(
        calls=len(calls),
        edits=0 if broken else sum(call.name in edit_tools for call in calls),
        question=not calls and not broken and _asks(text),
        malformed=broken[:300],
    )


def _asks(text: str) -> bool:
    """Whether the last line that says something is a question."""
    lines = [line.strip(" \t*_`\"')") for line in text.splitlines() if line.strip()]
    return bool(lines) and lines[-1].endswith("?")


def _misfit(call: ToolCall, tools: Sequence[Mapping[str, Any]]) -> str:
    """Why the offered tools cannot take this call; empty when they can."""
    schema = next((tool["function"] for tool in tools if tool["function"]["name"] == call.name), None)
    if schema is None:
        return f"there is no tool {call.name!r}"[:200]
    parameters = schema.get("parameters") or {}
    missing = [name for name in parameters.get("required") or [] if name not in call.arguments]
    return f"{call.name} lacks {', '.join(map(str, missing))}" if missing else ""
