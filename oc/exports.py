"""What leaves the product as a file: metrics, rollouts, settings, trajectories."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from oc.client import Client
from oc.launch import UsageError

OF_RUN = ("metrics", "rollouts", "config")
SERIES_AT_ONCE = 40
ALL = 1_000_000_000
EVERY_STEP = 2000
"""Buckets that one answer has at most; longer runs are fetched in stretches of so many steps."""


class Target:
    """A text stream; closed with the block when it is a file of our own."""

    def __init__(self, out: TextIO, path: Path | None) -> None:
        self.out, self.path = out, path

    @classmethod
    def file(cls, path: Path) -> Target:
        """Raises OSError."""
        return cls(path.open("w", encoding="utf-8", newline=""), path)

    def __enter__(self) -> TextIO:
        return self.out

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            self.out.close()


def target(name: str, out: TextIO) -> Target:
    """The file of this name, or `out` for `-`. Raises UsageError."""
    try:
        return Target(out, None) if name == "-" else Target.file(Path(name))
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error}") from error


def of_run(client: Client, pk: int, what: str, form: str | None, out: TextIO) -> None:
    """Raises UsageError for a format that does not fit, ApiError, Unreachable."""
    fits = ("yaml", "toml") if what == "config" else ("jsonl", "csv")
    form = form or fits[0]
    if form not in fits:
        raise UsageError(f"{what} come as {' or '.join(fits)}, not {form}")
    if what == "config":
        out.write(client.config_text(pk, form))
        return
    if what == "metrics":
        rows: Iterable[dict[str, Any]] = _metrics(client, pk)
    else:
        rows = (one.model_dump(mode="json") for one in client.rollouts(limit=ALL, run=pk))
    _write(rows, form, out)


def _metrics(client: Client, pk: int) -> Iterator[dict[str, Any]]:
    """One row a step and metric."""
    known = client.metrics(pk)
    for begin in range(0, len(known.names), SERIES_AT_ONCE):
        names = known.names[begin : begin + SERIES_AT_ONCE]
        for first in range(0, known.step + 1, EVERY_STEP):
            query = {"name": names, "first": first, "last": first + EVERY_STEP - 1, "buckets": EVERY_STEP}
            answer = client.call("GET", f"/runs/{pk}/metrics", query=query)
            for name, buckets in answer["series"].items():
                for bucket in buckets:
                    yield {"name": name, "step": bucket["last"], "value": bucket["value"]}


def trajectory(client: Client, pk: int, out: TextIO, *, tokens: bool) -> None:
    """The facts of the rollout in a first line, then a line a turn; with `tokens`, a line a segment at the end."""
    segments: dict[int, Any] = {}
    for number, page in enumerate(client.turns(pk, tokens=tokens)):
        data = page.model_dump(mode="json")
        turns = data.pop("turns")
        segments |= {segment["index"]: segment for segment in data.pop("segments")}
        if number == 0:
            out.write(json.dumps({"rollout": data}) + "\n")
        out.writelines(json.dumps({"turn": turn}) + "\n" for turn in turns)
    out.writelines(json.dumps({"segment": segment}) + "\n" for segment in segments.values())


def _write(rows: Iterable[dict[str, Any]], form: str, out: TextIO) -> None:
    if form == "jsonl":
        out.writelines(json.dumps(row) + "\n" for row in rows)
        return
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(out, list(row))
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    """A spreadsheet takes a leading `=`, `+`, `-` or `@` for a formula: text that begins so is quoted."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
