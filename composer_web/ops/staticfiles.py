"""Static files: served whole under ASGI, and the chart library from its installed package instead of a copy here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

NAME = "plotly/plotly.min.js"


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise's, which answers with a synchronous stream. Django reads such a stream whole under ASGI and warns each
    time, so the answer is whole from the start; the largest file is the chart library's 5 MB."""

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file as file:
                content = file.read()
        answer = HttpResponse(content, status=int(found.status))
        del answer["content-type"]  # a 304 has none
        for name, value in found.headers:
            answer[name] = value
        return answer


def package_data() -> Path:
    """Folder of plotly's browser bundle, found without importing the package."""
    spec = find_spec("plotly")
    assert spec is not None and spec.origin is not None, "plotly is a dependency"
    return Path(spec.origin).parent / "package_data"


class _OneFile(FileSystemStorage):
    prefix = "plotly"


class PlotlyFinder(BaseFinder):
    """`plotly/plotly.min.js`, and nothing else of that package."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.storage = _OneFile(location=package_data())

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = [str(package_data() / "plotly.min.js")] if path == NAME else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, FileSystemStorage]]:
        yield "plotly.min.js", self.storage
