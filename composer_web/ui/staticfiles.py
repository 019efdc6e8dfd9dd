"""Static files: served whole under ASGI and compressed."""

from __future__ import annotations

import gzip
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

from composer_web.ui.staticversion import VERSIONED

TEXT = ("text/", "image/svg")
"""Kinds that become smaller."""


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise's, which answers with a synchronous stream. Django reads such a stream whole under ASGI and warns each
    time, so the answer is whole from the start; the largest file is the chart library's 1.2 MB.

    A file is also found without a version in its address, or with another (a page that was open while the product was
    renewed): browsers must ask again for such a one.
    """

    def __call__(self, request: HttpRequest) -> Any:
        path = request.path_info
        if path.startswith("/static/") and not self.autorefresh and path not in self.files:
            known = self.files.get(settings.STATIC_URL + VERSIONED.sub("/static/", path).removeprefix("/static/"))
            if known is not None:
                answer = self.serve(known, request)
                answer["Cache-Control"] = "no-cache"
                return answer
        return super().__call__(request)

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        headers = dict(found.headers)
        if headers.get("Content-Type", "").startswith(TEXT):
            headers["Vary"] = "Accept-Encoding"
        content = b""
        if found.file is not None:
            with found.file as file:
                if found.status == 200 and "Vary" in headers and "gzip" in request.headers.get("accept-encoding", ""):
                    content = compressed(file.name, os.fstat(file.fileno()).st_mtime_ns)
                    headers |= {"Content-Encoding": "gzip", "Content-Length": str(len(content))}
                else:
                    content = file.read()
        answer = HttpResponse(content, status=int(found.status))
        del answer["content-type"]  # a 304 has none
        for name, value in headers.items():
            answer[name] = value
        return answer


@lru_cache(maxsize=256)
def compressed(path: str, changed: int) -> bytes:
    """Gzip-compressed content of a file last modified at `changed` (ns). Cached."""
    return gzip.compress(Path(path).read_bytes(), mtime=0)
