"""Answers on a terminal: tables and facts for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from pydantic import BaseModel

from oc.models import Interval

WIDEST = 60


class Output:
    """Writes to `out`. With `as_json` a list is one array, one thing an object, and a stream one object a line."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None) -> None:
        self.as_json, self.out = as_json, out or sys.stdout

    def rows(self, items: Iterable[BaseModel], columns: Sequence[str]) -> None:
        """A list. Columns are fields of the items; JSON has all fields."""
        if self.as_json:
            self.json([item.model_dump(mode="json") for item in items])
            return
        table = [[_cell(getattr(item, name)) for name in columns] for item in items]
        self.table(columns, table)

    def table(self, columns: Sequence[str], table: Sequence[Sequence[str]]) -> None:
        if not table:
            self.line("nothing")
            return
        widths = [max(len(row[i]) for row in (columns, *table)) for i in range(len(columns))]
        for row in (columns, *table):
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def one(self, item: BaseModel) -> None:
        """One thing, field by field."""
        if self.as_json:
            self.json(item.model_dump(mode="json"))
            return
        for name, value in item.model_dump(mode="json").items():
            if isinstance(value, dict | list) and value:
                self.line(
                    f"{name}:\n  {json.dumps(value, indent=2, ensure_ascii=False).replace(chr(10), chr(10) + '  ')}"
                )
            else:
                self.line(f"{name}: {_cell(value)}")

    def said(self, words: str, data: Any) -> None:
        """A sentence for people, or the same as data."""
        if self.as_json:
            self.json(data)
        else:
            self.line(words)

    def last(self, item: BaseModel, columns: Sequence[str]) -> None:
        """The end of a stream: a row for people, one more line of JSON for programs."""
        if self.as_json:
            self.streamed("", item.model_dump(mode="json"))
        else:
            self.rows([item], columns)

    def streamed(self, words: str, data: Any) -> None:
        """The same within a stream."""
        self.line(json.dumps(data) if self.as_json else words)
        self.out.flush()

    def json(self, data: Any) -> None:
        self.line(json.dumps(data, indent=2, ensure_ascii=False))

    def line(self, text: str) -> None:
        self.out.write(f"{text}\n")


def _cell(value: Any) -> str:
    """One line, safe on a terminal: names come from people and models, and control characters move the cursor."""
    if value is None:
        return "-"
    if isinstance(value, float):
        text = f"{value:.4g}"
    elif isinstance(value, Interval):
        text = f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"
    elif isinstance(value, list):
        text = ", ".join(map(str, value)) or "-"
    else:
        text = str(value) or "-"
    plain = "".join(letter if letter.isprintable() else "·" for letter in text)
    return plain if len(plain) <= WIDEST else f"{plain[: WIDEST - 1]}…"
