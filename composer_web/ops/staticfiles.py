"""Serves the chart library from the installed package, so that no copy of it lies in the repository."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

NAME = "plotly/plotly.min.js"


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
