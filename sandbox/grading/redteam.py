"""Recorded results of a red-team run: `make redteam` writes them, and the product shows the latest."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.grading.verdict.outcomes import Cause, Verdict
from sandbox.tasks.files import replace_file

FILE_NAME = "redteam.json"
"""Below the data folder."""
FORMAT = 1
MAX_BYTES = 8 << 20


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Outcome(Frozen):
    """One scripted attempt, graded and audited."""

    verdict: Verdict
    outcome: Cause | None = None
    cause: str = ""
    """Why it is not passed, in one line."""
    rules: tuple[str, ...] = ()
    """Findings of at least low severity, by rules over the trajectory and by grading."""


class Row(Frozen):
    """One exploit on one backend, beside its honest counterpart."""

    id: str
    """`A1` … `C7` of the catalogue (docs/sandbox/red-team.md)."""
    title: str
    defence: str
    backend: str
    task: str
    exploit: Outcome
    honest: Outcome
    wanted: tuple[str, ...] = ()
    """Rules of which at least one has to be raised."""
    leaked: tuple[str, ...] = ()
    """What the exploit got to see of the answer, the hidden tests or the host; has to be empty."""
    unguarded: bool | None = None
    """Whether the exploit is paid where its defence is missing; None where that cannot be tried. False proves nothing."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Why this row is not as it has to be; empty when it is."""
        found = []
        if self.exploit.verdict is not Verdict.FAILED:
            found.append(f"the exploit is {self.exploit.verdict} ({self.exploit.cause or 'every test passed'})")
        if self.honest.verdict is not Verdict.PASSED:
            found.append(f"the honest run is {self.honest.verdict} ({self.honest.cause})")
        if not set(self.wanted) & set(self.exploit.rules):
            found.append(f"none of {', '.join(self.wanted)} was raised")
        if self.leaked:
            found.append(f"it saw {self.leaked[0]!r}")
        if self.unguarded is False:
            found.append("the exploit fails without the defence as well: it shows nothing")
        return tuple(found)


class RedTeam(Frozen):
    """The table of one run."""

    format: int = FORMAT
    at: datetime
    commit: str
    machine: dict[str, str | int | float]
    seconds: float
    backends: tuple[str, ...]
    left_out: dict[str, str] = {}
    """Backends that were not tried → why."""
    rows: tuple[Row, ...]

    @property
    def bad(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.faults)

    @property
    def scored(self) -> int:
        return sum(row.exploit.verdict is Verdict.PASSED for row in self.rows)

    @property
    def honest_passed(self) -> int:
        return sum(row.honest.verdict is Verdict.PASSED for row in self.rows)

    @property
    def ids(self) -> tuple[str, ...]:
        """Every exploit, in the order of the catalogue."""
        return tuple(dict.fromkeys(row.id for row in sorted(self.rows, key=lambda row: order_of(row.id))))


def order_of(exploit: str) -> tuple[str, int]:
    """A9 before A10."""
    return exploit[:1], int(exploit[1:])


def save(data: Path, table: RedTeam) -> Path:
    """Keep `table` as the last one. Raises OSError."""
    path = data / FILE_NAME
    replace_file(path, table.model_dump_json(indent=1))
    return path


def load(data: Path) -> RedTeam | None:
    """The last table; None when there is none, or one that this version cannot read (then it is to be made again)."""
    path = data / FILE_NAME
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return RedTeam.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
