"""A policy at work in a sandbox: the harness's tools, a bounded number of turns, and one JSON answer in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sandbox.backends.base import PathError, Sandbox
from sandbox.errors import PackageError
from sandbox.harness.errors import HarnessFailure
from sandbox.harness.profile import Profile
from sandbox.harness.session import Session, system_prompt
from sandbox.harness.types import ToolCall
from sandbox.install.recipes.base import Log
from sandbox.install.recipes.errors import InstallFailed, Reason

ANSWER = "/tmp/answer.json"  # noqa: S108 (inside the sandbox)
MAX_ANSWER = 1 << 16
TURNS = 40
TURN_TOKENS = 4096
TURN_SECONDS = 180.0
TOOLS = ("read_file", "list_dir", "grep", "write_file", "edit_file", "run_terminal_cmd", "finish")
PROFILE = Profile("install", tools=TOOLS, command_seconds=600.0)
PROMPTS = Path(__file__).parent / "prompts"


class PolicyFailed(PackageError):
    """The endpoint gave no usable answer: nothing is known about the checkout."""


class Reply(Protocol):
    """One turn of a policy; `error` says why a call that was meant does not parse, and then there are no calls."""

    @property
    def text(self) -> str: ...

    @property
    def calls(self) -> tuple[ToolCall, ...]: ...

    @property
    def error(self) -> str | None: ...

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message as the next request has to repeat it."""
        ...

    @property
    def tokens(self) -> tuple[int, int]:
        """(read, written)."""
        ...


class Policy(Protocol):
    """Any model that takes messages and tools."""

    name: str

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        seconds: float,
    ) -> Reply:
        """The next turn. Raises PolicyFailed."""
        ...


@dataclass(slots=True)
class Spent:
    """What a policy used, over all its conversations."""

    turns: int = 0
    read: int = 0
    written: int = 0

    def words(self) -> str:
        return f"{self.turns} turns, {self.read} tokens read, {self.written} written"


def prompt(name: str, **parts: str) -> str:
    """The text of `prompts/<name>.md` with its parts filled in; other braces stay."""
    text = (PROMPTS / f"{name}.md").read_text(encoding="utf-8").strip()
    for key, part in parts.items():
        text = text.replace(f"{{{key}}}", part)
    return text


async def converse(policy: Policy, box: Sandbox, task: str, *, spent: Spent, log: Log, turns: int = TURNS) -> Any:
    """Let the policy work until it finishes; its answer as JSON. Raises InstallFailed, PolicyFailed, SandboxError."""
    session = Session(box, PROFILE)
    messages: list[dict[str, Any]] = [{"role": "system", "content": system_prompt()}, {"role": "user", "content": task}]
    for _ in range(turns):
        reply = await policy.ask(messages, session.schemas(), max_tokens=TURN_TOKENS, seconds=TURN_SECONDS)
        spent.turns += 1
        spent.read += reply.tokens[0]
        spent.written += reply.tokens[1]
        if reply.error:
            messages.append({"role": "assistant", "content": reply.text or "(a call that cannot be read)"})
            messages.append({"role": "user", "content": f"That call cannot be read: {reply.error}"})
            continue
        messages.append(reply.message)
        if not reply.calls:
            break
        for call in reply.calls:
            log(f"{policy.name}: {call.name} {json.dumps(call.arguments, ensure_ascii=False)[:600]}")
        try:
            results = await session.run(reply.calls)
        except HarnessFailure as error:
            raise InstallFailed(Reason.INSTALL, f"the tools failed under {policy.name}: {error}") from error
        for result in results:
            log(result.output[-1500:])
            messages.append({"role": "tool", "tool_call_id": result.call_id, "content": result.output})
        if session.finished:
            break
    return await _answer(policy, box)


async def _answer(policy: Policy, box: Sandbox) -> Any:
    try:
        return json.loads(await box.read(ANSWER, max_bytes=MAX_ANSWER))
    except (PathError, ValueError, RecursionError) as error:
        why = f"{policy.name} left no readable answer in {ANSWER}: {error}"
        raise InstallFailed(Reason.GOALS, why[:500]) from error
