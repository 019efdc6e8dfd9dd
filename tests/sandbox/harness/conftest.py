from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sandbox.backends.base import Backend, Sandbox
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import InlineEnvironment

FILES = {
    "totals.py": "def total(items):\n    value = 0\n    for item in items:\n        value += item\n    return value\n",
    "pkg/util.py": "LIMIT = 10\nNAMES = ['a', 'b', 'a']\n",
    "notes.txt": "".join(f"note {number}\n" for number in range(200)),
}

Call = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
async def sandbox(backend: Backend, environments: EnvironmentStore) -> AsyncIterator[Sandbox]:
    async with await backend.start(environments.spec(InlineEnvironment(files=FILES))) as made:
        yield made


@pytest.fixture
def session(sandbox: Sandbox) -> Session:
    return Session(sandbox, get_profile("full"))


@pytest.fixture
def call(session: Session) -> Call:
    """`await call(name, **arguments)` → the one result."""

    async def run(tool: str, **arguments: Any) -> ToolResult:
        (result,) = await session.run([ToolCall(id="c", name=tool, arguments=arguments)])
        return result

    return run
