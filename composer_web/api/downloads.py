"""Files in other projects' formats, as answers. What a format could not hold is in the header `X-Not-Carried`, one line each
joined by ` | `."""

from __future__ import annotations

from typing import BinaryIO

from django.http import FileResponse, HttpResponse

OCTETS = "application/octet-stream"


def download(data: bytes, name: str, losses: list[str]) -> HttpResponse:
    response = HttpResponse(data, content_type=OCTETS)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Not-Carried"] = _told(losses)
    return response


def download_file(file: BinaryIO, name: str, losses: list[str]) -> FileResponse:
    """As `download`, a chunk at a time."""
    response = FileResponse(file, as_attachment=True, filename=name, content_type=OCTETS)
    response["X-Not-Carried"] = _told(losses)
    return response


def _told(losses: list[str]) -> str:
    return " | ".join(losses)[:4000].encode("ascii", "replace").decode().replace("\n", " ")
