"""Deletes every weight version of a run from its weight store, newest first, so that a kill leaves whole chains."""

from __future__ import annotations

from django.db import transaction

from composer_web.core.queue import leases
from composer_web.rollouts.worker.tasks import remove_deployment
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.files import amounts
from composer_web.runs.models import Run
from composer_web.runs.paths import deployment_name, weights_folder
from trainer.weights import open_versions


def delete(deletion: FileDeletion, run: Run) -> None:
    """Raises LeaseLost, WeightError."""
    there = amounts.versions(run)
    if deletion.marked < 0:
        _count(deletion, there)
    if there.bytes == 0:
        return
    remove_deployment(deployment_name(run))  # it ended with the run; this is for one that was left
    store = open_versions(weights_folder(run))
    with store.writing():
        for _ in store.clear():
            leases.check()


@transaction.atomic
def _count(deletion: FileDeletion, there: amounts.Amount) -> None:
    """Once, before the first version goes."""
    leases.fence()
    deletion.marked, deletion.items, deletion.bytes = 0, there.items, there.bytes
    deletion.save(update_fields=["marked", "items", "bytes"])
