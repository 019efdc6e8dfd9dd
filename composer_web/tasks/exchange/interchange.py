"""Export and import of tasks and rollouts in external formats."""

from __future__ import annotations

import io
import json
import stat
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from django.utils import timezone

from composer_web.core.errors import UserError
from composer_web.rollouts import selectors
from composer_web.rollouts.exports import records
from composer_web.rollouts.models import Rollout
from composer_web.tasks.overlap import store
from sandbox.errors import TaskError
from sandbox.formats import harbor, inspect_log, messages, swebench
from sandbox.formats.base import FormatRefused, Losses
from sandbox.repositories.files import MAX_BUNDLE_BYTES, MAX_FILES
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec

TaskFormat = Literal["harbor", "swe-bench"]
RolloutFormat = Literal["atif", "messages", "mini-swe-agent"]
MAX_TASKS = 500
MAX_LOGGED = 2000
"""Rollouts of one log of Inspect: it is written while its reader waits."""


def export_tasks(specs: Sequence[TaskSpec], format: TaskFormat) -> tuple[bytes, list[str]]:
    """A zip of Harbor directories or SWE-bench's JSONL, and what the format could not hold.

    Tasks that the format cannot hold at all are named among that and left out. Raises UserError when none is left.
    """
    environments, losses, refused = store(), Losses(), list[str]()
    rows: list[swebench.Row] = []
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for spec in specs:
            try:
                if format == "harbor":
                    made, lost = harbor.export(spec, environments)
                    with tempfile.TemporaryDirectory() as folder:
                        made.write(Path(folder, spec.id))
                        for file in sorted(Path(folder).rglob("*")):
                            if file.is_file():
                                out.write(file, file.relative_to(folder).as_posix())
                else:
                    row, lost = swebench.export(spec, _reader(environments, spec))
                    rows.append(row)
            except TaskError as error:
                refused.append(str(error))
                continue
            losses.found |= lost.found
    if len(refused) == len(specs):
        raise UserError(
            "format", f"none of {len(specs)} tasks can be written as {format}: {refused[0] if refused else ''}"
        )
    data = archive.getvalue() if format == "harbor" else "".join(swebench.lines(rows)).encode()
    return data, [*losses, *refused]


def _reader(environments: EnvironmentStore, spec: TaskSpec) -> swebench.Read:
    return lambda path: environments.pristine(spec.environment, path)


def import_harbor(data: bytes) -> tuple[list[TaskSpec], list[str]]:
    """Tasks of a zip of Harbor directories, all or none. Raises UserError that names the entry."""
    folders: dict[str, dict[str, bytes]] = {}
    total = 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if entry.is_dir():
                    continue
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise FormatRefused(f"{entry.filename} is a link", remedy="A task directory holds plain files")
                folder, _, path = entry.filename.partition("/")
                total += entry.file_size
                if total > 4 * MAX_BUNDLE_BYTES or len(folders) > MAX_TASKS:
                    raise FormatRefused(
                        f"the archive holds more than {MAX_TASKS} tasks or {4 * MAX_BUNDLE_BYTES} bytes"
                    )
                if not path or len(folders.setdefault(folder, {})) >= MAX_FILES:
                    raise FormatRefused(f"{entry.filename} lies in no task directory, or in one of too many files")
                with archive.open(entry) as file:
                    folders[folder][path] = file.read(entry.file_size + 1)[: entry.file_size]
        losses, specs = Losses(), []
        for name, files in folders.items():
            spec, lost = harbor.to_task(harbor.from_files(name, files), store())
            specs.append(spec)
            losses.found |= lost.found
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise UserError("file", f"this is no readable zip archive: {error}") from error
    except TaskError as error:
        raise UserError("file", str(error)) from error
    if not specs:
        raise UserError("file", "the archive holds no task directory")
    return specs, list(losses)


def export_rollout(rollout: Rollout, format: RolloutFormat) -> tuple[object, list[str]]:
    """The document of one rollout, and what the format could not hold. Raises UserError."""
    if format == "atif":
        made = json.loads("".join(records.as_atif(rollout)))
        return made, [made["notes"]] if "notes" in made else []
    writers = {"messages": messages.export, "mini-swe-agent": messages.export_mini}
    document, losses = writers[format](records.record_of(rollout))
    return document, list(losses)


def export_log(evaluation: int) -> tuple[BinaryIO, list[str]]:
    """Inspect's log of an evaluation's rollouts, as an open file; rollouts without a trajectory are left out. Raises
    UserError for none, or for more than MAX_LOGGED."""
    rollouts = selectors.readable(Rollout.objects.filter(group__evaluation_id=evaluation)).order_by("pk")
    count = rollouts.count()
    if not count:
        raise UserError("evaluation", f"evaluation {evaluation} has no rollout with a trajectory yet")
    if count > MAX_LOGGED:
        raise UserError(
            "evaluation", f"evaluation {evaluation} has {count:,} rollouts, a log holds {MAX_LOGGED:,}; export the rollouts"
        )  # fmt: skip
    rows = rollouts.select_related("group__run", "group__evaluation__policy", "group__task_version__task")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.eval")
        made = (records.record_of(rollout) for rollout in rows.iterator(chunk_size=100))  # one trajectory in memory
        losses = inspect_log.export(made, path, suite=f"evaluation-{evaluation}", created=timezone.now())
        return path.open("rb"), list(losses)
