"""read_lints: what ruff finds in Python files.

ruff runs outside the sandbox on bytes read from it, isolated from every configuration file, so nothing that a
policy writes can change how the linter behaves or be executed by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from functools import cache
from typing import Any

from pydantic import Field

from sandbox.harness.errors import HarnessFailure, ToolFailure
from sandbox.harness.ordering import READS_ALL, Access
from sandbox.harness.paths import checkout_path
from sandbox.harness.tools.base import Arguments, Output, Tool, ToolContext
from sandbox.harness.tools.files import kind_of, read_bytes
from sandbox.harness.types import ToolErrorKind

RULES = "E9,F"
LINT_SECONDS = 20.0
MAX_FOUND_BYTES = 8 << 20
"""Most that is read of what ruff finds in one file: a megabyte of Python may hold half a million errors."""
PARALLEL = 4
PROOF = "sound.py", b"x = 1\n"
"""A file on which ruff cannot fail, unless it is broken."""


class ReadLintsArguments(Arguments):
    paths: tuple[str, ...] | None = Field(
        default=None, description="Python files or directories to check; the files changed so far when absent."
    )


class ReadLints(Tool[ReadLintsArguments]):
    name = "read_lints"
    description = "Show linter errors of Python files, as `path:line:column: CODE message`."
    arguments = ReadLintsArguments

    def access(self, arguments: ReadLintsArguments) -> tuple[Access, ...]:
        for path in arguments.paths or ():
            checkout_path(path)
        return READS_ALL

    async def run(self, arguments: ReadLintsArguments, context: ToolContext) -> Output:
        if arguments.paths is None:
            changes = (await context.sandbox.diff()).changes
            names = [change.path for change in changes if change.content is not None and change.path.endswith(".py")]
        else:
            names = await _python_files(context, [checkout_path(path) for path in arguments.paths])
        limit = context.profile.lint_files
        left_out = len(names) - limit
        gate = asyncio.Semaphore(PARALLEL)

        async def one(name: str) -> list[str]:
            async with gate:
                return await lint(name, await read_bytes(context, name))

        found = [line for lines in await asyncio.gather(*map(one, names[:limit])) for line in lines]
        if left_out > 0:
            found.append(f"[... {left_out} more files not checked; name them in paths ...]")
        return Output("\n".join(found) or "no lints")


async def _python_files(context: ToolContext, paths: list[str]) -> list[str]:
    """The named files, with directories replaced by the Python files below them, in path order."""
    files: dict[str, None] = {}
    for path in paths:
        kind = await kind_of(context, path)
        if kind is None:
            raise ToolFailure(ToolErrorKind.NOT_FOUND, f"no such file: {path}")
        if kind != "dir":
            if not path.endswith((".py", ".pyi")):
                raise ToolFailure(ToolErrorKind.REFUSED, f"not a Python file: {path}")
            files[path] = None
            continue
        pending = [path]
        while pending and len(files) <= 10 * context.profile.lint_files:
            folder = pending.pop()
            prefix = "" if folder == "." else f"{folder}/"
            for name, entry_kind, _ in await context.sandbox.list(folder):
                if entry_kind == "dir" and not name.startswith("."):
                    pending.append(prefix + name)
                elif entry_kind == "file" and name.endswith(".py"):
                    files[prefix + name] = None
    return sorted(files)


@cache
def ruff_path() -> str:
    from ruff.__main__ import find_ruff_bin  # type: ignore[import-untyped]

    return str(find_ruff_bin())


async def lint(name: str, content: bytes) -> list[str]:
    """ruff's findings in one file as output lines. Raises HarnessFailure when ruff is absent or broken, ToolFailure when
    this file breaks it."""
    try:
        process = await asyncio.create_subprocess_exec(
            ruff_path(),
            *("check", "--isolated", "--no-cache", "--select", RULES, "--exit-zero", "--output-format", "json-lines"),
            f"--stdin-filename={name}",
            "-",
            cwd="/",
            env={},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (ImportError, OSError) as error:
        raise HarnessFailure("read_lints", error) from error
    try:
        async with asyncio.timeout(LINT_SECONDS):
            (out, more), (err, _), _ = await asyncio.gather(
                _head(process, process.stdout), _head(process, process.stderr), _feed(process, content)
            )
            await process.wait()
    except TimeoutError:
        raise ToolFailure(ToolErrorKind.TIMEOUT, f"linting {name} took longer than {LINT_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0 and not more:
        if b"UTF-8" in err:
            raise ToolFailure(ToolErrorKind.REFUSED, f"not a UTF-8 text file: {name}")
        if (name, content) == PROOF:
            raise HarnessFailure("read_lints", RuntimeError(f"ruff ended with {process.returncode}: {err[-300:]!r}"))
        await lint(*PROOF)  # whether ruff or the file is at fault
        raise ToolFailure(ToolErrorKind.REFUSED, f"the linter cannot read {name}")
    lines = [line for line in out.split(b"\n") if line]
    if more:
        lines.pop()  # cut
    shown = [_line(name, json.loads(line)) for line in lines]
    return [*shown, f"[... more lints of {name} ...]"] if more else shown


async def _head(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> tuple[bytes, bool]:
    """What the process writes to one of its streams, and whether there was more than is taken: it is ended then."""
    assert stream is not None
    data = bytearray()
    while part := await stream.read(1 << 16):
        data += part
        if len(data) > MAX_FOUND_BYTES:
            if process.returncode is None:
                process.kill()
            return bytes(data), True
    return bytes(data), False


async def _feed(process: asyncio.subprocess.Process, content: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may end before it has read all
        process.stdin.write(content)
        await process.stdin.drain()
    process.stdin.close()


def _line(name: str, item: dict[str, Any]) -> str:
    where = item["location"]
    message = " ".join(str(item["message"]).split())
    code = item["code"] or "E999"
    if code == "invalid-syntax":
        code = "E999"
    return f"{name}:{where['row']}:{where['column']}: {code} {message}"
