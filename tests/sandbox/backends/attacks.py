"""What the attacks share."""

from __future__ import annotations

import asyncio
import textwrap

from sandbox.backends.base import Sandbox

MEMORY_HOG = "python3 -c 'x=[]\nwhile 1: x.append(bytearray(10**7))'"


async def alive(sandbox: Sandbox) -> None:
    """The next call and the next file operation answer soon."""
    async with asyncio.timeout(25):
        result = await sandbox.exec("echo alive", timeout=20)
        assert (result.exit_code, result.output) == (0, b"alive\n"), result
        assert await sandbox.read("main.py")


def python(source: str) -> str:
    return f"python3 - <<'END_OF_SOURCE'\n{textwrap.dedent(source)}\nEND_OF_SOURCE"
