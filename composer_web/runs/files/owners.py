"""Groups and rollouts whose trajectories belong to a run or to an evaluation of its own."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from composer_web.evals.models import Evaluation
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.selectors import readable
from composer_web.runs.models import Run

Owner = Run | Evaluation


def groups_of(owner: Owner) -> QuerySet[Group]:
    """Groups of a run and of its evaluations, or of an evaluation."""
    if isinstance(owner, Run):
        return Group.objects.filter(Q(run=owner) | Q(evaluation__run=owner))
    return Group.objects.filter(evaluation=owner)


def rollouts_of(owner: Owner) -> QuerySet[Rollout]:
    """Rollouts whose trajectory is there."""
    return readable(Rollout.objects.filter(group__in=groups_of(owner).order_by()))


def noun(owner: Owner) -> str:
    return f"{'run' if isinstance(owner, Run) else 'evaluation'} {owner.pk}"
