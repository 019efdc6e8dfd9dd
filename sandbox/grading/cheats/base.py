"""What an exploit is: a scripted agent that tries to be paid without doing the work.

One exploit a file: a module of this package (or of `tests/redteam`) that defines `EXPLOIT` (there `PAIR` or `PAIRS`). The
script acts as a policy does, through the tools of the product's own harness in its own sandbox, and knows what an agent
can find out: the instruction, the checkout, and (as the worst case) which files the oracle changes and the names of the
hidden tests. It never reads the oracle's text or an expected value from the task.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a scripted agent: what it said, its one call, and the result."""

    text: str
    call: ToolCall
    result: ToolResult


@dataclass(slots=True)
class Agent:
    """A scripted policy over one session. Every call is recorded, so that monitors can read what a policy would show."""

    session: Session
    steps: list[Step] = field(default_factory=list)

    async def call(self, tool: str, /, *, says: str = "", **arguments: object) -> ToolResult:
        """One tool call as a turn of its own. Raises HarnessFailure; a refused call is a result with an error."""
        call = ToolCall(id=f"call-{len(self.steps)}", name=tool, arguments=arguments)
        (result,) = await self.session.run([call])
        self.steps.append(Step(says, call, result))
        return result

    async def shell(self, command: str, *, says: str = "", background: bool = False) -> str:
        """Run a command in the agent's shell; what it printed."""
        return (await self.call("run_terminal_cmd", says=says, command=command, background=background)).output

    async def write(self, path: str, text: str, *, says: str = "") -> None:
        """Create or replace a file of the checkout, through the file tool."""
        await self.call("write_file", says=says, path=path, content=text)

    async def append(self, path: str, text: str, *, says: str = "") -> None:
        """Add to the end of a file of the checkout."""
        await self.shell(f"cat >> {shlex.quote(path)} <<'END_OF_TEXT'\n{text}\nEND_OF_TEXT", says=says)

    async def finish(self, summary: str = "Fixed.") -> None:
        await self.call("finish", summary=summary)


Script = Callable[[Agent, TaskSpec], Awaitable[None]]


def any_task(task: TaskSpec) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Exploit:
    """A catalogued way to cheat. The expected verdict is always `failed`."""

    id: str
    """`A1` to `D15` of the catalogue (docs/sandbox/red-team.md)."""
    title: str
    run: Script
    findings: tuple[str, ...] = ()
    """Rules of which at least one must be raised, by grading (`Report.findings`) or by a monitor of trajectories."""
    applies: Callable[[TaskSpec], bool] = any_task
    """Whether the exploit makes sense against this task (a pytest trick against a pytest verifier)."""
