"""Reading text files of the checkout, with errors put into the harness's words."""

from __future__ import annotations

from sandbox.backends.base import PathError
from sandbox.harness.errors import ToolFailure
from sandbox.harness.tools.base import ToolContext
from sandbox.harness.types import ToolErrorKind

MAX_READ_BYTES = 1 << 20


async def kind_of(context: ToolContext, path: str) -> str | None:
    """`file`, `dir`, `other`, or None when nothing is there."""
    if path == ".":
        return "dir"
    parent, _, name = path.rpartition("/")
    try:
        entries = await context.sandbox.list(parent or ".")
    except PathError:
        return None
    return next((kind for entry, kind, _ in entries if entry == name), None)


async def explain(context: ToolContext, path: str, error: PathError) -> ToolFailure:
    """Why `path` could not be used, as a failure for the policy."""
    kind = await kind_of(context, path)
    if kind is None:
        return ToolFailure(ToolErrorKind.NOT_FOUND, f"no such file: {path}")
    if kind == "dir":
        return ToolFailure(ToolErrorKind.REFUSED, f"is a directory: {path}")
    return ToolFailure(ToolErrorKind.REFUSED, f"cannot use {path}: {error}")


async def read_bytes(context: ToolContext, path: str) -> bytes:
    """Content of a regular file of the checkout. Raises ToolFailure."""
    try:
        return await context.sandbox.read(path, max_bytes=MAX_READ_BYTES)
    except PathError as error:
        raise await explain(context, path, error) from error


async def read_text(context: ToolContext, path: str) -> str:
    """Content of a UTF-8 text file. Raises ToolFailure; binary files are refused."""
    data = await read_bytes(context, path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ToolFailure(ToolErrorKind.REFUSED, f"not a UTF-8 text file: {path}") from None
    if "\0" in text:
        raise ToolFailure(ToolErrorKind.REFUSED, f"not a text file: {path}")
    return text


async def write_text(context: ToolContext, path: str, text: str) -> None:
    """Create or replace a file. Raises ToolFailure."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolFailure(ToolErrorKind.INVALID_ARGUMENTS, "text holds a lone surrogate; it cannot be saved") from None
    if len(data) > MAX_READ_BYTES:
        raise ToolFailure(ToolErrorKind.REFUSED, f"too large: {len(data)} bytes, at most {MAX_READ_BYTES}")
    try:
        await context.sandbox.write(path, data)
    except PathError as error:
        kind = await kind_of(context, path)
        reason = f"is a directory: {path}" if kind == "dir" else f"cannot write {path}: {error}"
        raise ToolFailure(ToolErrorKind.REFUSED, reason) from error
