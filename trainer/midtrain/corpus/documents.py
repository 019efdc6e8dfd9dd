"""A document of a corpus: one file's text with its origin."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict, Field

MAX_CHARS = 1 << 20
"""A longer text is generated or data; it is left out and counted."""
LANGUAGES = {
    ".py": "python", ".pyi": "python", ".js": "javascript", ".mjs": "javascript", ".jsx": "javascript",
    ".ts": "typescript", ".tsx": "typescript", ".go": "go", ".rs": "rust", ".java": "java", ".kt": "kotlin",
    ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".hpp": "cpp", ".cs": "csharp", ".rb": "ruby", ".php": "php",
    ".swift": "swift", ".scala": "scala", ".sh": "shell", ".bash": "shell", ".sql": "sql", ".html": "html",
    ".css": "css", ".md": "markdown", ".rst": "markdown", ".txt": "text", ".toml": "config", ".yaml": "config",
    ".yml": "config", ".json": "config", ".ini": "config",
}  # fmt: skip
OTHER = "other"


def language_of(path: str) -> str:
    """By the suffix; `other` where it says nothing."""
    return LANGUAGES.get(PurePosixPath(path).suffix.lower(), OTHER)


class Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    path: str
    """Within its source."""
    source: str
    """Name of the source that it was read from."""
    language: str
    revision: str = ""
    """Commit of a git repository."""
    licence: str = Field(default="", max_length=200)
    """As the source states it; unknown when empty."""

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()
