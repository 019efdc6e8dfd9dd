"""Answers on a terminal: tables and fields for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

MAX_CELL = 60
"""Characters of a table cell; longer text is cut."""

Item = dict[str, Any]


class Output:
    """Writes to `out`. With `as_json`, a list is one array, one thing is an object, and a stream is one object a line."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.as_json, self.out = False, out or sys.stdout

    def rows(self, items: Iterable[Item], columns: Sequence[str]) -> None:
        """A list. `columns` are the fields that the table shows; JSON has all fields."""
        if self.as_json:
            self.json(list(items))
        else:
            self.table(columns, [[_cell(item.get(name)) for name in columns] for item in items])

    def table(self, columns: Sequence[str], table: Sequence[Sequence[str]]) -> None:
        if not table:
            self.line("nothing")
            return
        widths = [max(len(row[i]) for row in (columns, *table)) for i in range(len(columns))]
        for row in (columns, *table):
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def one(self, item: Item) -> None:
        """One thing, field by field."""
        if self.as_json:
            self.json(item)
            return
        for name, value in item.items():
            if isinstance(value, dict | list) and value:
                inner = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n  ")
                self.line(f"{name}:\n  {inner}")
            else:
                self.line(f"{name}: {_cell(value)}")

    def said(self, words: str, data: Any) -> None:
        """A sentence for people, or the same as data."""
        if self.as_json:
            self.json(data)
        else:
            self.line(words)

    def streamed(self, words: str, data: Any) -> None:
        """The same within a stream."""
        self.line(json.dumps(data) if self.as_json else words)
        self.out.flush()

    def progress(self, words: str) -> None:
        """How far something is, beside the output: nothing for programs."""
        if not self.as_json:
            sys.stderr.write(f"{words}\n")
            sys.stderr.flush()

    def last(self, item: Item, columns: Sequence[str]) -> None:
        """The end of a stream: a row for people, one more line of JSON for programs."""
        if self.as_json:
            self.streamed("", item)
        else:
            self.rows([item], columns)

    def json(self, data: Any) -> None:
        self.line(json.dumps(data, indent=2, ensure_ascii=False))

    def line(self, text: str) -> None:
        self.out.write(f"{text}\n")


def _cell(value: Any) -> str:
    """One line. Names come from people and models, so control characters, which move the cursor, are replaced."""
    if value is None:
        return "-"
    if isinstance(value, float):
        text = f"{value:.4g}"
    elif isinstance(value, dict) and value.keys() >= {"value", "low", "high"}:
        text = f"{value['value']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
    elif isinstance(value, list):
        text = ", ".join(map(str, value)) or "-"
    else:
        text = str(value) or "-"
    plain = "".join(letter if letter.isprintable() else "·" for letter in text)
    return plain if len(plain) <= MAX_CELL else f"{plain[: MAX_CELL - 1]}…"
