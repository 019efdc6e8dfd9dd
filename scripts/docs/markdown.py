"""Pieces of Markdown that the generated pages share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

GENERATED = "*This page is generated from {source}; it always matches the installed version.*"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Cells are Markdown already; bars and line breaks in them are made harmless."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def plain(text: str) -> str:
    """Text of a docstring or schema as Markdown: outside of code, what looks like HTML is shown as it is."""
    parts = text.split("`")
    return "`".join(
        part if number % 2 else part.replace("<", "&lt;").replace("*", "\\*") for number, part in enumerate(parts)
    )


def code(value: object) -> str:
    """A value as inline code, written as in JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else ""
