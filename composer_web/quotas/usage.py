"""What everybody uses of what quotas limit, counted for all owners at once: for pages that show many quotas."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum

from composer_web.accounts.access import everywhere
from composer_web.quotas import gpus
from composer_web.quotas.limits import Use

Owner = tuple[str, int | None]
"""`user` or `project`, and its key."""


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """Rollouts in flight, bytes of kept checkpoints and GPUs trained on, by owner; `everything` is all rollouts in flight."""

    rollouts: Counter[Owner]
    bytes: Counter[Owner]
    gpus: Counter[Owner]
    everything: int

    def use(self, *, user_id: int | None = None, project_id: int | None = None) -> Use:
        """Current use of a project if given, else of a user."""
        owner = _owner(user_id, project_id)
        return Use(self.rollouts[owner], self.bytes[owner], self.everything - self.rollouts[owner])

    def trained(self, *, user_id: int | None = None, project_id: int | None = None) -> int:
        """GPUs in use for training."""
        return self.gpus[_owner(user_id, project_id)]


def standing() -> QuotaUsage:
    """Current use of all projects, in three queries."""
    from composer_web.policies.models import Checkpoint
    from composer_web.rollouts.models import GROUP_OPEN, Group

    with everywhere():  # also when a page of one project asks
        groups = Group.objects.filter(state__in=GROUP_OPEN, run__isnull=False).order_by()
        flying = list(groups.values_list("run__created_by", "run__project").annotate(Sum("size")))
        checkpoints = Checkpoint.objects.filter(removed_at=None).order_by()
        of = ("policy__produced_by__created_by", "policy__produced_by__project")
        kept = list(checkpoints.values_list(*of).annotate(Sum("bytes")))
        runs = gpus.trained().only("config", "created_by", "project")
        training = [(run.created_by_id, run.project_id, gpus.of_run(run)) for run in runs]
    return QuotaUsage(_by_owner(flying), _by_owner(kept), _by_owner(training), sum(row[2] for row in flying))


def _by_owner(rows: list[Any]) -> Counter[Owner]:
    """Rows are (person, project, number)."""
    found: Counter[Owner] = Counter()
    for user_id, project_id, number in rows:
        found["user", user_id] += number
        found["project", project_id] += number
    return found


def _owner(user_id: int | None, project_id: int | None) -> Owner:
    return ("project", project_id) if project_id is not None else ("user", user_id)
