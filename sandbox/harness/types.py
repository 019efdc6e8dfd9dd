"""The words of the harness: tool calls, their results, and why an episode ends."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandbox.storable import StorableText, storable_json


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolErrorKind(StrEnum):
    """Why a tool call failed. Only `infrastructure` is not the policy's doing."""

    MALFORMED_CALL = "malformed_call"  # not JSON, or not a call object
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    NOT_FOUND = "not_found"  # file, directory or text to replace
    CONFLICT = "conflict"  # ambiguous edit, file exists
    REFUSED = "refused"  # outside the checkout, read-only, too large
    TIMEOUT = "timeout"
    INFRASTRUCTURE = "infrastructure"


class ToolCall(Frozen):
    """A call as the policy wrote it. Arguments that no store can hold are kept in a storable form and `refused`."""

    id: StorableText
    name: StorableText
    arguments: dict[str, Any] = Field(default_factory=dict)
    refused: StorableText = ""
    """Why the arguments cannot be used as they were written; the call is answered with this error and does nothing."""

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("arguments"), dict):
            return data
        arguments, problem = storable_json(data["arguments"])
        refused = data.get("refused") or (f"the arguments hold {problem}" if problem else "")
        return {**data, "arguments": arguments, "refused": refused}


class ToolError(Frozen):
    kind: ToolErrorKind
    message: StorableText
    """One line for the policy: what was found and what to do instead."""


class ToolResult(Frozen):
    call_id: StorableText
    output: StorableText
    """What the policy reads: bounded text, the error's message when there is one."""
    error: ToolError | None = None
    seconds: float = 0.0
    cut_bytes: int = 0
    """Bytes left out of the middle of `output`."""


class StopReason(StrEnum):
    FINISHED = "finished"  # the policy called finish
    NO_TOOL_CALL = "no_tool_call"  # a turn without a call: the final message
    MALFORMED_CALL = "malformed_call"  # profile says that a malformed call ends the episode
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    SANDBOX_BROKEN = "sandbox_broken"  # the policy's calls lost their sandbox, twice
    CANCELLED = "cancelled"
    INFRA_ERROR = "infra_error"
