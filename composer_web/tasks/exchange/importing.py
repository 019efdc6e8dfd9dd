"""Imports external files: as tasks of a suite, or as a trajectory that can be exported to other formats.

All of a file comes in or nothing; what stood in the way is named with its line, entry or field.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.core.errors import NotFound, UserError
from composer_web.repositories.models import Environment
from composer_web.tasks.exchange.interchange import import_harbor
from composer_web.tasks.models import ImportedTrajectory, Suite
from composer_web.tasks.overlap import store
from composer_web.tasks.services import build_suite
from sandbox.errors import TaskError
from sandbox.formats import atif, messages, swebench
from sandbox.formats.base import FormatRefused, Losses, read_json
from sandbox.formats.record import Record
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec

TaskImport = Literal["harbor", "swe-bench"]
TrajectoryFormat = Literal["atif", "messages", "mini-swe-agent"]
MAX_ROWS = 5000
WRITERS = {"atif": atif.export, "messages": messages.export, "mini-swe-agent": messages.export_mini}


def import_suite(
    data: bytes, *, name: str, format: TaskImport = "harbor", environment: str = "", purpose: str = "benchmark",
    told: str = "", actor: User | None = None,
) -> tuple[Suite, list[str]]:  # fmt: skip
    """A suite of the tasks of a file, and what was not carried.

    Their controls are sent to the build workers. Raises UserError, Conflict.
    """
    if purpose not in ("train", "held-out", "benchmark"):
        raise UserError("purpose", f"train, held-out or benchmark, not {purpose!r}")
    if format not in ("harbor", "swe-bench"):
        raise UserError("format", f"harbor or swe-bench, not {format!r}")
    specs, losses = import_harbor(data) if format == "harbor" else import_rows(data, environment=environment)
    suite = build_suite(
        name=name, purpose=purpose, specs=specs, description=f"Imported from {told or 'a file'}",
        recipe={"source": format}, validate=True, actor=actor,
    )  # fmt: skip
    return suite, losses


def import_rows(data: bytes, *, environment: str) -> tuple[list[TaskSpec], list[str]]:
    """SWE-bench's rows over the checkout of a ready environment. Raises UserError with the row and the column."""
    found = Environment.objects.filter(name=environment, state="ready").select_related("repository").first()
    if found is None or not found.digest:
        raise UserError(
            "environment",
            f"there is no ready environment {environment!r}; rows name a commit, and it has to be built first",
        )
    checkout = BuiltEnvironment(digest=found.digest)
    pin = found.repository.pin if found.repository else ""
    losses, specs = Losses(), []
    try:
        rows = swebench.load(data.decode())
        if len(rows) > MAX_ROWS:
            raise FormatRefused(f"the document holds {len(rows)} rows; at most {MAX_ROWS} are read")
        for row in rows:
            spec, lost = swebench.to_task(row, checkout, lambda path: store().pristine(checkout, path))
            specs.append(spec)
            losses.found |= lost.found
            if row.base_commit and row.base_commit != pin:
                losses.add(
                    "base_commit", f"the checkout is that of {environment}, whose commit is {pin or 'not known'}"
                )
    except UnicodeDecodeError as error:
        raise UserError("file", f"the rows are not UTF-8 at byte {error.start}") from error
    except TaskError as error:
        raise UserError("file", str(error)) from error
    return specs, list(losses)


def read_trajectory(data: bytes) -> tuple[Record, list[str], TrajectoryFormat]:
    """A trajectory of whichever format it is in. Raises UserError with the field or message."""
    try:
        value = read_json(data, "the file")
        form = format_of(value)
        record, losses = {"atif": _atif, "messages": messages.load, "mini-swe-agent": messages.load_mini}[form](data)
    except TaskError as error:
        raise UserError("file", str(error)) from error
    return record, list(losses), form


def _atif(data: bytes) -> tuple[Record, Losses]:
    return atif.load(data)


def format_of(value: Any) -> TrajectoryFormat:
    """By what only one format has. Raises FormatRefused."""
    if isinstance(value, list):
        return "messages"
    if isinstance(value, dict) and "trajectory_format" in value:
        return "mini-swe-agent"
    if isinstance(value, dict) and "schema_version" in value:
        return "atif"
    raise FormatRefused(
        "this is no trajectory that is known here",
        remedy="Known are a list of messages, mini-swe-agent's (trajectory_format) and ATIF (schema_version)",
    )


def keep_trajectory(data: bytes, *, actor: User | None = None) -> tuple[str, list[str]]:
    """Keep a trajectory by its content; returns its name and what was not carried. Raises UserError."""
    record, losses, form = read_trajectory(data)
    name = hashlib.sha256(record.model_dump_json().encode()).hexdigest()[:32]
    artifacts().put_model(_key(name), record)
    ImportedTrajectory.objects.get_or_create(
        name=name,
        defaults={
            "title": record.id[:200],
            "format": form,
            "task": record.task[:200],
            "agent": record.agent[:200],
            "model": record.model[:200],
            "steps": len(record.steps),
            "output_tokens": sum(len(step.completion_token_ids) for step in record.steps),
            "reward": record.reward,
            "created_by": actor,
        },
    )
    audit(actor=actor, action="trajectory.import", target=f"trajectory:{name}", format=form, steps=len(record.steps))
    return name, losses


def kept_trajectory(name: str) -> Record:
    """Raises NotFound."""
    try:
        return artifacts().get_model(_key(name), Record)
    except ArtifactError as error:
        raise NotFound("trajectory", name) from error


def write_trajectory(record: Record, format: TrajectoryFormat) -> tuple[bytes, list[str]]:
    """The document in a format, and what that cannot hold."""
    if format not in WRITERS:
        raise UserError("format", f"{', '.join(WRITERS)}, not {format!r}")
    document, losses = WRITERS[format](record)
    return json.dumps(document, indent=1).encode(), list(losses)


def _key(name: str) -> str:
    return f"trajectories/imported/{name}.json.zst"
