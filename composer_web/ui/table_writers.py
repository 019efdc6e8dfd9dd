"""Tables as files: CSV that people open in a spreadsheet, JSON lines, Parquet with typed columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

Kind = Literal["integer", "number", "text", "truth", "time", "data"]
Row = dict[str, Any]
Write = Callable[[list[Row]], None]


class Column(NamedTuple):
    """Where a column is read from in a query, and what it holds. `data` is anything that JSON can say."""

    source: str
    kind: Kind = "text"


Columns = Mapping[str, Column]


def cell(value: Any) -> Any:
    """Spreadsheets run what begins like a formula, and a policy, a repository or a user name may have written it."""
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


@contextmanager
def _csv(path: Path, columns: Columns) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        yield lambda rows: writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)


def line(row: Row) -> str:
    """A row as one line of JSON."""
    return json.dumps(row, default=datetime.isoformat, ensure_ascii=False) + "\n"


@contextmanager
def _jsonl(path: Path, columns: Columns) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(map(line, rows))


@contextmanager
def _parquet(path: Path, columns: Columns) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "text": pa.string(),
        "truth": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "data": pa.string(),
    }
    schema = pa.schema([(name, kinds[column.kind]) for name, column in columns.items()])
    told = [name for name, column in columns.items() if column.kind == "data"]

    with parquet.ParquetWriter(path, schema) as writer:

        def put(rows: list[Row]) -> None:
            plain = [{**row, **{name: json.dumps(row[name], ensure_ascii=False) for name in told}} for row in rows]
            writer.write_table(pa.Table.from_pylist(plain, schema=schema))

        yield put


WRITERS: dict[str, Callable[[Path, Columns], AbstractContextManager[Write]]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
}
TYPES = {"csv": "text/csv", "jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet"}
