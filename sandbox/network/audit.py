"""Audit log of a sandbox's requests: one row per request, passed to a sink when it is answered."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

Decision = Literal["allowed", "denied", "failed"]
MAX_TEXT = 500


class AuditRecord(BaseModel):
    """One request (or, past the request bound, `count` of them together)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: AwareDatetime
    sandbox: str
    method: str
    path: str
    """As asked for, cut at 500 characters."""
    host: str = ""
    """Registry hosts that were contacted for it, in order, separated by spaces; empty when it was answered here."""
    decision: Decision
    """`failed`: allowed, but the registry or the way to it was at fault."""
    rule: str = ""
    """Why it was denied (`Rule`), or what was hidden from an allowed page, as `rule=count` words."""
    detail: str = ""
    status: int = 0
    fetched: int = 0
    """Body bytes that came from registries."""
    sent: int = 0
    """Body bytes that went into the sandbox."""
    seconds: float = 0.0
    count: int = 1


Sink = Callable[[AuditRecord], None]
"""Takes each record once. When it raises, the sandbox gets no more answers: nothing happens unrecorded."""


class AuditFile:
    """A sink: JSON lines, appended whole, one file for as many sandboxes as wanted."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __call__(self, record: AuditRecord) -> None:
        line = record.model_dump_json(exclude_defaults=True).encode() + b"\n"
        if os.write(self._descriptor, line) != len(line):
            raise OSError("the audit log took only a part of a record")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> Iterator[AuditRecord]:
    """The records of an AuditFile. Raises ValueError with the line's number for a line that is none."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield AuditRecord.model_validate(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
