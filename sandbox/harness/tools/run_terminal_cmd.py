"""run_terminal_cmd: a command in the session's shell, or in the background."""

from __future__ import annotations

import shlex

from pydantic import Field

from sandbox.backends.base import EndReason, ExecResult
from sandbox.harness.bounds import bound
from sandbox.harness.errors import ToolFailure
from sandbox.harness.ordering import WRITES_ALL, Access
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.types import ToolErrorKind


class RunTerminalCmdArguments(Arguments):
    command: str = Field(min_length=1, max_length=100_000, description="Command line for bash.")
    background: bool = Field(default=False, description="Start it and return at once; its output goes to a file.")


class RunTerminalCmd(Tool[RunTerminalCmdArguments]):
    name = "run_terminal_cmd"
    description = (
        "Run a bash command. The working directory, variables and functions last from one call to the next. "
        "There is no terminal to answer prompts. Set background for servers and other long-running commands."
    )
    arguments = RunTerminalCmdArguments

    def access(self, arguments: RunTerminalCmdArguments) -> tuple[Access, ...]:
        return WRITES_ALL

    async def run(self, arguments: RunTerminalCmdArguments, context: ToolContext) -> Output:
        if "\0" in arguments.command:
            raise ToolFailure(ToolErrorKind.INVALID_ARGUMENTS, "command holds a NUL character")
        command = arguments.command
        self.recall(arguments, context)
        if arguments.background:
            log = f"/tmp/background-{context.background_count}.log"  # noqa: S108  (inside the sandbox)
            command = (
                f"eval {shlex.quote(command)} >{log} 2>&1 </dev/null &\n"
                f'echo "started in background as process $!, output in {log}"'
            )
        outcome = await context.sandbox.exec(command, timeout=context.profile.command_seconds)
        text, cut = _visible(outcome, context.profile.output_bytes)
        if outcome.ended is EndReason.TIMEOUT:
            message = f"command ran longer than {context.profile.command_seconds:g} s and was ended"
            raise ToolFailure(ToolErrorKind.TIMEOUT, message, detail=text)
        if outcome.ended is EndReason.MEMORY:
            raise ToolFailure(ToolErrorKind.REFUSED, "command used too much memory and was ended", detail=text)
        status = f"exit code {outcome.exit_code}"
        return Output(f"{text}\n{status}" if text else status, cut_bytes=cut, bounded=True)

    def recall(self, arguments: RunTerminalCmdArguments, context: ToolContext) -> None:
        context.background_count += arguments.background


def _visible(outcome: ExecResult, limit: int) -> tuple[str, int]:
    """A command's output for the policy within about `limit` bytes, and the bytes that it does not see."""
    text = outcome.output.decode("utf-8", "replace").rstrip("\n")
    unseen = max(0, outcome.total_bytes - len(outcome.output))
    return bound(text, limit, unseen=unseen)
