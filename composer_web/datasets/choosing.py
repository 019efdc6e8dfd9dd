"""Selects the rollouts of a dataset."""

from __future__ import annotations

import hashlib
import json

from django.db.models import QuerySet
from django.http import QueryDict

from composer_web.core.errors import UserError
from composer_web.rollouts import selectors
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.search.filters import RolloutFilter
from composer_web.tasks.models import Suite
from composer_web.ui.filters import WrongFilter, strict
from trainer.sft.conversations.conversation import SourceFacts

SOURCE = "rollouts"


def chosen(query: str) -> QuerySet[Rollout]:
    """Graded rollouts that these filters leave, newest first, without those in quarantine. Raises UserError."""
    given = QueryDict(query, mutable=True)
    suites = given.pop("suite", [])
    try:
        found = strict(RolloutFilter, given, queryset=selectors.rollouts(), own=())
    except WrongFilter as error:
        raise UserError("rollouts", error.message) from error
    rows = selectors.readable(found.qs.filter(state="graded")).exclude(quarantine__state="active")
    if suites:
        suite = Suite.objects.filter(name=suites[-1]).first()
        if suite is None:
            raise UserError("rollouts", f"there is no suite {suites[-1]!r}; look at the page Suites")
        rows = rows.filter(group__task_version__in=suite.versions.all())
    return rows.order_by("-pk")


def facts_of(query: str, ids: list[int]) -> SourceFacts:
    digest = hashlib.sha256(json.dumps([query, ids]).encode()).hexdigest()
    return SourceFacts(name=SOURCE, kind=f"rollouts?{query}", digest=digest)
