"""Static data flow over the files that an attempt leaves: where a value comes from, and what is done with it."""

from __future__ import annotations

from sandbox.grading.audit.flow import braces, python
from sandbox.grading.audit.flow.base import Flow, Kind

__all__ = ["Flow", "Kind", "flows_of"]


def flows_of(path: str, text: str) -> list[Flow]:
    """Facts about one file, by its ending; nothing for languages that are not read."""
    if path.endswith((".py", ".pyi", ".pyx")):
        return python.flows(text)
    return braces.flows(path, text)
