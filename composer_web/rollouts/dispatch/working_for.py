"""The runs that this process works for, by the leases that it holds."""

from __future__ import annotations

from composer_web.core.queue import leases
from composer_web.rollouts.models import Group


def runs() -> list[int]:
    """Run that it trains, and the runs of its groups, also of those of their evaluations."""
    held = [resource.partition(":") for resource in leases.keeper.resources()]
    found = {int(number) for kind, _, number in held if kind == "run"}
    if groups := [int(number) for kind, _, number in held if kind == "group"]:
        for pair in Group.objects.filter(pk__in=groups).values_list("run_id", "evaluation__run_id"):
            found.update(pk for pk in pair if pk is not None)
    return sorted(found)
