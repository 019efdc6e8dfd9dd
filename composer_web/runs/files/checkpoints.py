"""Deletes checkpoints of a run, oldest first: an older one may be a difference against the next newer one."""

from __future__ import annotations

import shutil
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from composer_web.core.queue import leases
from composer_web.policies.in_use import synchronize
from composer_web.policies.models import Checkpoint
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.files import amounts
from composer_web.runs.files.refusals import version_of
from composer_web.runs.files.used_checkpoints import uses
from composer_web.runs.models import Run
from composer_web.runs.paths import checkpoints_folder
from trainer.checkpoint import in_use


class StillUsed(Exception):
    """Something came to use what was to be deleted. The message names it."""


def delete(deletion: FileDeletion, run: Run) -> None:
    """Raises StillUsed, LeaseLost, OSError."""
    synchronize(uses())  # what was used until a moment ago is free
    _clear_leftovers(checkpoints_folder(run))
    folders = amounts.steps(run)
    for folder in folders if deletion.final else folders[:-1]:
        if holders := in_use.holders(folder):
            raise StillUsed(_used(folder, holders))
        rows, size = [row.pk for row in amounts.recorded_in(run, folder)], amounts.size_of(folder)
        _mark(deletion, version_of(folder.name), rows, size)
        if not in_use.remove_unless_held(folder):
            _unmark(deletion, rows, size)
            raise StillUsed(_used(folder, in_use.holders(folder)))
        _done(deletion)
    _done(deletion)  # also of a step whose folder was gone before a kill


def _clear_leftovers(root: Path) -> None:
    """Finish what a killed process began: nobody writes here any more."""
    for partial in root.glob(".step-*.partial"):
        shutil.rmtree(partial)
    for retired in root.glob(".step-*.retired"):
        if in_use.holders(retired):
            retired.rename(root / retired.name.removeprefix(".").removesuffix(".retired"))
        else:
            shutil.rmtree(retired)


def _used(folder: Path, holders: set[str]) -> str:
    names = ", ".join(sorted(holders)) or "something"
    return f"version {version_of(folder.name)} has come to be used by {names}; it and newer ones stay"


@transaction.atomic
def _mark(deletion: FileDeletion, step: int, rows: list[int], size: int) -> None:
    """The checkpoint is shown as deleted from here on. It is counted once, however often it is tried."""
    leases.fence()
    Checkpoint.objects.filter(pk__in=rows, removed_at=None).update(removed_at=timezone.now())
    if deletion.marked != step:
        deletion.marked, deletion.items, deletion.bytes = step, deletion.items + 1, deletion.bytes + size
        deletion.save(update_fields=["marked", "items", "bytes"])


@transaction.atomic
def _unmark(deletion: FileDeletion, rows: list[int], size: int) -> None:
    leases.fence()
    Checkpoint.objects.filter(pk__in=rows).update(removed_at=None)
    deletion.marked, deletion.items = deletion.done_to, deletion.items - 1
    deletion.bytes = max(0, deletion.bytes - size)
    deletion.save(update_fields=["marked", "items", "bytes"])


@transaction.atomic
def _done(deletion: FileDeletion) -> None:
    leases.fence()
    deletion.done_to = deletion.marked
    deletion.save(update_fields=["done_to"])
