"""Errors that end a study with a sentence instead of a traceback."""

from __future__ import annotations


class StudyError(Exception):
    """What was found, and the remedy. The study continues from its state file after the remedy."""

    def __init__(self, field: str, found: str, remedy: str) -> None:
        super().__init__(f"{field}: {found}. {remedy}")
        self.field = field
