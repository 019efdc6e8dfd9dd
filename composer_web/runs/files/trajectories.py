"""Deletes trajectories of a run or an evaluation, and the training data of its groups, a batch of groups at a time.

A transaction marks the rollouts of a batch as deleted; then their blobs go; then `done_to` moves past the batch. After a kill
in between, the batch's blobs are deleted again: what is marked is never shown as there.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from composer_web.core.artifacts import artifacts
from composer_web.core.queue import leases
from composer_web.rollouts.models import Rollout, RolloutText
from composer_web.rollouts.selectors import readable
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.files import blobs
from composer_web.runs.files.kept import kept
from composer_web.runs.files.owners import Owner, groups_of

BATCH = 50
"""Groups that one transaction marks."""


@dataclass(frozen=True)
class Batch:
    last: int
    """Its last group."""
    keys: list[str]
    """Blobs to delete."""


def delete(deletion: FileDeletion, owner: Owner) -> None:
    """Raises ArtifactError, LeaseLost."""
    while (groups := _following(deletion, owner)) is not None:
        batch = _mark(deletion, groups)
        artifacts().remove(batch.keys)
        _done(deletion, batch.last)


def _following(deletion: FileDeletion, owner: Owner) -> list[int] | None:
    """Groups of the next batch: those that were marked before a kill, else the following ones. None after the last."""
    rows = groups_of(owner).filter(pk__gt=deletion.done_to).order_by("pk").values_list("pk", flat=True)
    if deletion.marked > deletion.done_to:
        return list(rows.filter(pk__lte=deletion.marked))
    return list(rows[:BATCH]) or None


def _mark(deletion: FileDeletion, groups: list[int]) -> Batch:
    sizes = {pk: blobs.sizes_of(pk) for pk in groups}  # before the transaction: it may take seconds in a bucket
    with transaction.atomic():
        leases.fence()
        rows = Rollout.objects.filter(group__in=groups).exclude(artifact_key="")
        again = deletion.marked > deletion.done_to
        if not again:
            there = readable(rows).select_for_update(of=("self",), no_key=True).order_by("pk")
            ids = list(there.values_list("pk", flat=True))
            going = set(ids) - kept(rows.filter(pk__in=ids), annotated=deletion.annotated).keys()
            deletion.items += Rollout.objects.filter(pk__in=going).update(deletion=deletion)
            RolloutText.objects.filter(pk__in=going).delete()
        staying: dict[int, list[str]] = {}
        for group, key in readable(rows).values_list("group_id", "artifact_key"):
            staying.setdefault(group, []).append(key)
        removed = {
            key: size for pk in groups for key, size in blobs.removable(pk, sizes[pk], staying.get(pk, ())).items()
        }
        if not again:
            deletion.bytes += sum(removed.values())
            deletion.marked = groups[-1]
            deletion.save(update_fields=["items", "bytes", "marked"])
    return Batch(deletion.marked, list(removed))


@transaction.atomic
def _done(deletion: FileDeletion, last: int) -> None:
    leases.fence()
    deletion.done_to = last
    deletion.save(update_fields=["done_to"])
