"""Prompts that a run has not used yet, in its order. What it used long ago is not read again.

The pump asks with each group that ends, under the lock of the run. A process remembers the order of a run, and up to where
it is used up; both are only a saving, and what Postgres says counts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.db import transaction

from composer_web.rollouts.models import Group, Quarantine
from composer_web.rollouts.review_hooks import review
from composer_web.runs.models import Run
from composer_web.tasks.selectors import prompt_order, suite_state
from trainer.config import CurriculumConfig, RLConfig

CHUNK = 256
"""Prompts that are looked at together."""
MAX_REMEMBERED = 32
"""Runs whose order a process remembers."""


@dataclass(frozen=True, slots=True)
class _Place:
    state: tuple[object, ...]
    """What the order was made from."""
    order: Sequence[int]
    begin: int = 0
    """Everything before is used."""


_places: OrderedDict[int, _Place] = OrderedDict()
_lock = threading.Lock()


def fresh_prompts(run: Run, stage: RLConfig, count: int) -> list[int]:
    """The next `count` task versions of the run, or as many as there are: unused, not in quarantine, not excluded by labels.

    Call it with the run locked. A rejected version makes another order of the suite, so that what was used counts and not
    how much.
    """
    place = _place(run, stage)
    excluded = review().excluded_versions(stage.labels)
    found, begin = _scan(run, place, excluded, count)
    if len(found) < count and place.begin:  # a quarantine may have been lifted behind it
        place = _Place(place.state, place.order)
        found, begin = _scan(run, place, excluded, count)
    if place.state:
        transaction.on_commit(partial(_remember, run.pk, _Place(place.state, place.order, begin)))
    return found


def _scan(run: Run, place: _Place, excluded: set[int], count: int) -> tuple[list[int], int]:
    """The prompts from there on, and up to where all are used."""
    found: list[int] = []
    begin = at = place.begin
    while at < len(place.order) and len(found) < count:
        chunk = place.order[at : at + CHUNK]
        used = set(Group.objects.filter(run=run, task_version__in=chunk).values_list("task_version_id", flat=True))
        barred = Quarantine.objects.filter(task_version__in=chunk, state="active")
        kept_out = excluded.union(barred.values_list("task_version_id", flat=True))
        for key in chunk:
            if key in used:
                begin += begin == at
            elif key not in kept_out:
                found.append(key)
            at += 1
    return found[:count], begin


def _place(run: Run, stage: RLConfig) -> _Place:
    neutral = stage.curriculum == CurriculumConfig()
    state = suite_state(stage.suite)
    with _lock:
        known = _places.get(run.pk)
    if neutral and known is not None and known.state == state:
        return known
    needed = stage.steps * stage.groups_per_step
    order = prompt_order(stage.suite, seed=run.seed, sampler=stage.curriculum, prompts=needed)
    return _Place(state if neutral else (), order)


def _remember(run_id: int, place: _Place) -> None:
    with _lock:
        _places[run_id] = place
        _places.move_to_end(run_id)
        while len(_places) > MAX_REMEMBERED:
            _places.popitem(last=False)
