"""A session: the tools of one profile over one sandbox, for one episode."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from sandbox.backends.base import Sandbox, SandboxError
from sandbox.harness.bounds import bound
from sandbox.harness.errors import HarnessFailure, ToolFailure
from sandbox.harness.ordering import Access, must_wait
from sandbox.harness.profile import Profile
from sandbox.harness.session.schemas import schema_hash_of, schemas_of
from sandbox.harness.tools import select
from sandbox.harness.tools.base import Arguments, Output, Todo, Tool, ToolContext
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult

log = logging.getLogger(__name__)


class Session:
    """Runs tool calls. `finished` turns true when the policy called `finish`."""

    def __init__(self, sandbox: Sandbox, profile: Profile) -> None:
        self.profile = profile
        self.schema_hash = schema_hash_of(profile)
        self._tools = select(profile.tools)
        self._context = ToolContext(sandbox=sandbox, profile=profile)
        self.asked: list[tuple[ToolCall, ...]] = []
        """The calls of each turn that was run here, in order."""

    @property
    def sandbox(self) -> Sandbox:
        return self._context.sandbox

    @property
    def finished(self) -> bool:
        return self._context.finished

    @property
    def summary(self) -> str:
        """What the policy said when it called `finish`."""
        return self._context.summary

    @property
    def todos(self) -> tuple[Todo, ...]:
        return tuple(self._context.todos)

    def schemas(self) -> list[dict[str, Any]]:
        return schemas_of(self.profile)

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Results of one turn's calls, in call order. Calls run concurrently (see `ordering.py` for what waits).

        Faults of the policy are results with an error. Raises HarnessFailure when the sandbox or a helper process
        failed; the episode then has no verdict.
        """
        self.asked.append(tuple(calls))
        prepared = [self._prepare(call) for call in calls]
        tasks: list[asyncio.Task[ToolResult]] = []
        for index, item in enumerate(prepared):
            before = [tasks[j] for j in range(index) if must_wait(item.access, prepared[j].access)]
            tasks.append(asyncio.ensure_future(self._after(before, item)))
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, ToolResult)]

    def recall(self, calls: Sequence[ToolCall]) -> None:
        """Take in calls that were run in the past of this sandbox, which went on from a snapshot. Nothing is run."""
        for item in map(self._prepare, calls):
            if item.tool is not None and item.arguments is not None:
                item.tool.recall(item.arguments, self._context)

    def _prepare(self, call: ToolCall) -> _Prepared:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            return _Prepared(
                call, failure=ToolFailure(ToolErrorKind.UNKNOWN_TOOL, f"no tool {call.name}; tools: {known}")
            )
        if call.refused:
            message = f"{call.name}: {call.refused}"
            return _Prepared(call, failure=ToolFailure(ToolErrorKind.INVALID_ARGUMENTS, message))
        try:
            arguments = tool.arguments.model_validate(call.arguments)
            return _Prepared(call, tool=tool, arguments=arguments, access=tool.access(arguments))
        except ValidationError as error:
            message = f"{call.name}: {_first_problem(error)}"
            return _Prepared(call, failure=ToolFailure(ToolErrorKind.INVALID_ARGUMENTS, message))
        except ToolFailure as failure:
            return _Prepared(call, failure=failure)

    async def _after(self, before: list[asyncio.Task[ToolResult]], item: _Prepared) -> ToolResult:
        if before:
            await asyncio.wait(before)
        started = time.monotonic()
        try:
            if item.failure is not None:
                raise item.failure
            assert item.tool is not None
            assert item.arguments is not None
            output = await item.tool.run(item.arguments, self._context)
            error = None
        except ToolFailure as failure:
            text = f"error: {failure.message}"
            output = Output(f"{text}\n{failure.detail}" if failure.detail else text)
            error = ToolError(kind=failure.kind, message=failure.message)
        except SandboxError as failure:
            raise HarnessFailure(item.call.name, failure) from failure
        except OSError:
            raise  # the host's, not the arguments'
        except Exception as failure:
            log.warning("tool %s raised on its arguments", item.call.name, exc_info=True)
            message = f"{item.call.name} cannot work with these arguments: {type(failure).__name__}"
            output = Output(f"error: {message}")
            error = ToolError(kind=ToolErrorKind.INVALID_ARGUMENTS, message=message)
        text, cut = (output.text, 0) if output.bounded else bound(output.text, self.profile.output_bytes)
        seconds = time.monotonic() - started
        return ToolResult(
            call_id=item.call.id, output=text, error=error, seconds=seconds, cut_bytes=output.cut_bytes + cut
        )


class _Prepared:
    """A call after validation: a tool with arguments, or the failure to report."""

    __slots__ = ("access", "arguments", "call", "failure", "tool")

    def __init__(
        self,
        call: ToolCall,
        *,
        tool: Tool[Any] | None = None,
        arguments: Arguments | None = None,
        access: tuple[Access, ...] = (),
        failure: ToolFailure | None = None,
    ) -> None:
        self.call = call
        self.tool = tool
        self.arguments = arguments
        self.access = access
        self.failure = failure


def _first_problem(error: ValidationError) -> str:
    """The first validation problem as `field: what is wrong`."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "arguments"
    return f"{where}: {problem['msg']}"
