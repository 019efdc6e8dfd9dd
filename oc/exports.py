"""What leaves the product as a file: tables, settings, trajectories."""

from __future__ import annotations

import argparse
import codecs
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO
from urllib.parse import urlencode

from oc.client import PAGE, Client
from oc.grammar import Grammar, Handler, patience
from oc.launch import UsageError
from oc.show import Output
from oc.waiting import Ended, until

OF_RUN = ("metrics", "rollouts", "findings", "evaluations", "config")
TABLES = ("rollouts", "findings", "runs", "metrics", "evaluations", "leaderboard", "tasks", "sessions")
FORMATS = ("jsonl", "csv", "parquet")
COLUMNS = ("id", "what", "format", "query", "state", "rows", "bytes", "expires_at")
PATIENCE = 1800.0
"""Seconds that a worker has for a file, and some for its turn."""


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("exports", "tables as files, written by a worker and kept for a week")
    group.listing("one's own exports")
    made = group.add("make", "a table with the filters of its list, as a file")
    made.add_argument("what", choices=TABLES)
    made.add_argument("filters", nargs="*", metavar="name=value", help="as the list's address has them: run=12")
    made.add_argument("--format", choices=FORMATS, default="jsonl")
    made.add_argument("-o", "--output", default="-", help="file; - is standard output")
    patience(made)
    made = group.add("fetch", "the file of an export that is done", "id")
    made.add_argument("-o", "--output", default="-", help="file; - is standard output")
    return {"exports": _exports}


def leaves(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """Something leaves in one of these formats; the first unless one is said."""
    parser.add_argument("--format", choices=formats, default=formats[0])
    parser.add_argument("-o", "--output", default="-", help="file; - is standard output")


def _exports(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.exports.list(limit=options.limit), COLUMNS)
        case "make":
            if wrong := [word for word in options.filters if "=" not in word]:
                raise UsageError(f"{wrong[0]!r}: write name=value")
            query = urlencode([tuple(word.split("=", 1)) for word in options.filters])
            with target(options.output, output.out) as file:
                table(client, options.what, query, options.format, file, timeout=options.timeout)
        case _:
            with target(options.output, output.out) as file:
                _fetch(client, options.id, file)


class Target:
    """Where a file goes; closed with the block when it is a file of our own."""

    def __init__(self, out: TextIO, file: BinaryIO | None) -> None:
        self._out, self._file = out, file

        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def fits(self, form: str) -> None:
        """Raises UsageError for a form that no terminal shows."""
        if self._file is None and form == "parquet":
            raise UsageError("Parquet is no text: name a file with -o")

    def write(self, data: bytes, /) -> None:
        if self._file is None:
            self._out.write(self._decode(data))
        else:
            self._file.write(data)

    def text(self, text: str) -> None:
        self.write(text.encode())

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def target(name: str, out: TextIO) -> Target:
    """The file of this name, or `out` for `-`. Raises UsageError."""
    try:
        return Target(out, None if name == "-" else Path(name).open("wb"))
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error}") from error


def table(client: Client, what: Any, query: str, form: Any, out: Target, *, timeout: float = PATIENCE) -> None:
    """Ask for the file, wait for the worker that writes it, fetch it. Raises Ended, FollowTimeout, ApiError, Unreachable."""
    out.fits(form)
    asked = client.exports.create(what=what, query=query, format=form)
    made = until(
        lambda: client.exports.get(asked.id),
        lambda one: one.state in ("done", "failed", "void"),
        timeout=timeout,
        what=f"export {asked.id}",
    )
    if made.state != "done":
        raise Ended(f"export {made.id}: {made.cause}")
    client.exports.get_file(made.id, out)


def _fetch(client: Client, pk: int, out: Target) -> None:
    out.fits(client.exports.get(pk).format)
    client.exports.get_file(pk, out)


def of_run(client: Client, pk: int, what: str, form: Any, out: Target) -> None:
    """Raises UsageError for a format that does not fit, and what `table` raises."""
    fits = ("yaml", "toml") if what == "config" else FORMATS
    form = form or fits[0]
    if form not in fits:
        raise UsageError(f"{what} come as {', '.join(fits[:-1])} or {fits[-1]}, not {form}")
    if what == "config":
        out.text(client.runs.get_config(pk, format=form).text)
    else:
        table(client, what, f"run={pk}", form, out)


def trajectory(client: Client, pk: int, out: Target, *, tokens: bool) -> None:
    """The facts of the rollout in a first line, then a line a turn; with `tokens`, a line a segment at the end."""
    segments: dict[int, Any] = {}
    offset: int | None = 0
    while offset is not None:
        page = client.rollouts.get_trajectory(pk, offset=offset, limit=PAGE, tokens=tokens or None)
        data = page.model_dump(mode="json")
        turns = data.pop("turns")
        segments |= {segment["index"]: segment for segment in data.pop("segments")}
        if offset == 0:
            out.text(json.dumps({"rollout": data}) + "\n")
        for turn in turns:
            out.text(json.dumps({"turn": turn}) + "\n")
        offset = page.next
    for segment in segments.values():
        out.text(json.dumps({"segment": segment}) + "\n")
