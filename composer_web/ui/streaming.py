"""Answers in pieces. Under ASGI Django reads a synchronous iterator to its end before it sends the first byte."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

PIECE = 256 << 10


def streamed(
    request: HttpRequest, pieces: Iterator[bytes] | Iterator[str], *, content_type: str, name: str
) -> StreamingHttpResponse:
    """A file to keep, of any size: one piece is in memory at a time."""
    content: Any = _one_by_one(pieces) if isinstance(request, ASGIRequest) else pieces
    answer = StreamingHttpResponse(content, content_type=content_type)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def streamed_file(request: HttpRequest, file: BinaryIO, *, content_type: str) -> StreamingHttpResponse:
    """An open file of ours under its own name."""

    def pieces() -> Iterator[bytes]:
        with file:
            yield from iter(lambda: file.read(PIECE), b"")

    answer = streamed(request, pieces(), content_type=content_type, name=Path(file.name).name)
    answer["Content-Length"] = os.fstat(file.fileno()).st_size
    return answer


def spooled(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines as the pieces of a file, which is written whole on disk before this returns.

    For lines that come from the database: the pieces of an answer are asked for from several threads, each of which would
    hold a connection of its own.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by its last piece, or with the iterator)
    for line in lines:
        file.write(line.encode())
    file.seek(0)

    def pieces() -> Iterator[bytes]:
        with file:
            yield from iter(lambda: file.read(PIECE), b"")

    return pieces()


async def _one_by_one(pieces: Iterator[bytes] | Iterator[str]) -> AsyncIterator[bytes | str]:
    following: Any = sync_to_async(next, thread_sensitive=False)
    while (piece := await following(pieces, None)) is not None:
        yield piece
