"""A seeded product, made once a worker: later modules get its rows and files back instead of making them again."""

from __future__ import annotations

import pickle
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.db import connection, transaction

from composer_web.env import env

T = TypeVar("T")
FILES = ("artifacts", "corpora", "datasets", "environments", "exports", "redteam.json")
"""What rows point to in the data folder."""
APART = 1_000_000
"""New rows of one restored product have other ids than those of the one before: caches of the process outlive both."""
COLUMNS = """
SELECT table_name, array_agg(quote_ident(column_name) ORDER BY ordinal_position),
       array_agg(quote_ident(column_name)) FILTER (WHERE data_type = 'timestamp with time zone')
FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND is_generated = 'NEVER' GROUP BY table_name
"""
SEQUENCES = "SELECT sequencename, coalesce(last_value, 1) FROM pg_sequences WHERE schemaname = 'public'"


@dataclass(frozen=True)
class Rows:
    """The whole content of the database, as COPY writes it."""

    tables: list[tuple[str, list[str], list[str], bytes]]
    """Name, columns, those that hold times, rows."""
    sequences: list[tuple[str, int]]
    at: float

    @staticmethod
    def read() -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(SEQUENCES)
            sequences = cursor.fetchall()
            cursor.execute(COLUMNS)
            tables = []
            for name, columns, times in cursor.fetchall():
                with cursor.copy(f'COPY "{name}" ({", ".join(columns)}) TO STDOUT') as found:
                    tables.append((name, columns, times or [], b"".join(bytes(part) for part in found)))
        return Rows(tables, sequences, time.monotonic())

    def write(self, *, apart: int) -> None:
        """Replace everything in the database. Times move by the age of these rows; the next ids by `apart`."""
        age = time.monotonic() - self.at
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger, no check of references
            cursor.execute("TRUNCATE " + ", ".join(f'"{name}"' for name, *_ in self.tables))
            for name, columns, times, rows in self.tables:
                if rows:
                    with cursor.copy(f'COPY "{name}" ({", ".join(columns)}) FROM STDIN') as copy:
                        copy.write(rows)
                if rows and times:
                    moved = ", ".join(f"{column} = {column} + interval '{age:.3f} s'" for column in times)
                    cursor.execute(f'UPDATE "{name}" SET {moved}')
            for name, last in self.sequences:
                cursor.execute("SELECT setval(%s::regclass, %s)", [f'public."{name}"', last + apart])
            cursor.execute("SET LOCAL session_replication_role = origin")


class Snapshot(Generic[T]):
    """`make()` once; every later call restores what it made and returns an equal value (a pickle).

    It may be called inside a transaction that is rolled back later.
    """

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self._name, self._make = name, make
        self._made: tuple[bytes, Rows] | None = None
        self._times = 0

    def __call__(self) -> T:
        data = env().data
        files = data / "seeded" / self._name  # the data folder is the worker's own, and goes with the session
        if self._made is None:
            made = self._make()
            self._made = pickle.dumps(made), Rows.read()
            files.mkdir(parents=True)
            _copy(data, files)
            return made
        self._times += 1
        value, rows = self._made
        rows.write(apart=self._times * APART)
        _copy(files, data)
        restored: Any = pickle.loads(value)
        return restored


def _copy(here: Path, there: Path) -> None:
    for name in FILES:
        source, target = here / name, there / name
        if target.is_dir():
            shutil.rmtree(target)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        elif source.exists():
            shutil.copy2(source, target)
