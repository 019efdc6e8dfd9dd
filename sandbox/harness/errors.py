"""Failures of tool calls: the policy's own (a readable result) or ours (an exception)."""

from __future__ import annotations

from sandbox.harness.types import ToolErrorKind


class ToolFailure(Exception):
    """Raised by a tool for a fault of the call. `message` is one line for the policy, `detail` output it may read."""

    def __init__(self, kind: ToolErrorKind, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail


class HarnessFailure(Exception):
    """The sandbox or a helper process failed during a call: the episode has no verdict and may be run again."""

    kind = ToolErrorKind.INFRASTRUCTURE

    def __init__(self, tool: str, cause: BaseException) -> None:
        super().__init__(f"{tool}: {cause}")
        self.tool = tool
        self.cause = cause
