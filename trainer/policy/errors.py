"""Errors of a policy folder, as one exception type with a remedy."""

from __future__ import annotations

from pathlib import Path


class PolicyUnreadable(ValueError):
    """A policy folder cannot be loaded. `field` names the faulty part, `remedy` the fix."""

    def __init__(self, folder: Path, field: str, found: str, remedy: str) -> None:
        super().__init__(f"policy {folder.name!r} is unreadable: {field}: {found}. {remedy}")
        self.folder = folder
        self.field = field
        self.found = found
        self.remedy = remedy
