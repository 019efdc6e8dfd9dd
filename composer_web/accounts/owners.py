"""Which object an address is about, and so which project: a table of all addresses.

An address with a key that no line explains belongs to nobody and is refused (a test walks over all of them).
"""

from __future__ import annotations

import functools
import re
from typing import Any

from django.apps import apps

INSTALLATION = (
    "api/v1/alerts/deliveries", "api/v1/alerts/notices", "api/v1/alerts/rules", "api/v1/alerts/webhooks", "api/v1/audit",
    "api/v1/docs", "api/v1/gateway/erase", "api/v1/gateway/settings", "api/v1/health", "api/v1/people",
    "api/v1/promotions", "api/v1/quotas", "api/v1/tokens", "alerts/deliveries/", "alerts/rules/", "alerts/webhooks/", "audit/",
    "notifications/", "people/", "promotion/", "sessions/erase/", "sessions/settings/", "system/", "tokens/",
)  # fmt: skip
"""Begins of addresses that are about the whole installation: the role of the account counts."""

FOR_ALL = ("api/v1/health", "api/v1/docs")
"""Of these what everybody with an account may see, also with a token of one project."""

MATERIAL = (
    "api/v1/curation", "api/v1/endpoints", "api/v1/environments", "api/v1/policies", "api/v1/releases", "api/v1/suites",
    "api/v1/tasks", "environments/", "evals/releases/", "evals/tasks/", "api/v1/evaluations/tasks/", "generators/",
    "imports/", "policies/", "suites/", "tasks/",
)  # fmt: skip
"""Begins of addresses of what a library shares: read by every project, changed by its own."""

USES = (
    "evals/releases/<benchmark>/<number>/run/", "api/v1/releases/<benchmark>/<number>/evaluations",
    "policies/<name>/evaluate/", "policies/<name>/measure/", "api/v1/policies/<name>/measurements",
)  # fmt: skip
"""Changes that only use what is shared: what they make is the user's own."""

PLAIN = frozenset({"action", "form", "format", "part", "number", "batch"})
"""Keys that name no object of a project by themselves. A batch of changes is looked up among the project's tasks."""

Line = tuple[str, str, str, str]
OBJECTS: tuple[Line, ...] = (
    # begin of the address, key in it, model, its field
    ("api/v1/runs/", "run_id", "runs.Run", "pk"),
    ("api/v1/runs/views/", "view_id", "runs.SavedView", "pk"),
    ("api/v1/rollouts/queries/", "query_id", "rollouts.SavedQuery", "pk"),
    ("api/v1/templates/", "template_id", "runs.RunTemplate", "pk"),
    ("api/v1/sweeps/", "sweep_id", "runs.Sweep", "pk"),
    ("api/v1/rollouts/", "rollout_id", "rollouts.Rollout", "pk"),
    ("api/v1/forks/", "fork_id", "rollouts.Fork", "pk"),
    ("api/v1/exports/", "export_id", "rollouts.Export", "pk"),
    ("api/v1/groups/", "group_id", "rollouts.Group", "pk"),
    ("api/v1/findings/", "finding_id", "rollouts.Finding", "pk"),
    ("api/v1/review/", "name", "review.Queue", "name"),
    ("api/v1/review/", "rollout", "rollouts.Rollout", "pk"),
    ("api/v1/datasets/", "dataset_id", "datasets.Dataset", "pk"),
    ("api/v1/drafts/", "draft_id", "review.Draft", "pk"),
    ("api/v1/tasks/", "slug", "tasks.Task", "slug"),
    ("api/v1/tasks/rollouts/", "rollout_id", "rollouts.Rollout", "pk"),
    ("api/v1/tasks/trajectories/", "name", "tasks.ImportedTrajectory", "name"),
    ("api/v1/curation/tasks/", "slug", "tasks.Task", "slug"),
    ("api/v1/suites/", "name", "tasks.Suite", "name"),
    ("api/v1/policies/", "name", "policies.Policy", "name"),
    ("api/v1/endpoints/", "name", "policies.Policy", "name"),
    ("api/v1/measurements/", "order_id", "policies.MeasurementOrder", "pk"),
    ("api/v1/gateway/sessions/", "session_id", "gateway.Session", "pk"),
    ("api/v1/gateway/own-sessions/", "client_id", "gateway.Session", "client_id"),
    ("api/v1/evaluations/", "evaluation_id", "evals.Evaluation", "pk"),
    ("api/v1/evaluations/tasks/", "slug", "tasks.Task", "slug"),
    ("api/v1/releases/", "benchmark", "evals.Release", "benchmark"),
    ("api/v1/environments/", "name", "repositories.Environment", "name"),
    ("datasets/", "pk", "datasets.Dataset", "pk"),
    ("drafts/", "pk", "review.Draft", "pk"),
    ("environments/", "pk", "repositories.Environment", "pk"),
    ("evals/", "pk", "evals.Evaluation", "pk"),
    ("evals/releases/", "benchmark", "evals.Release", "benchmark"),
    ("evals/tasks/", "slug", "tasks.Task", "slug"),
    ("findings/", "pk", "rollouts.Finding", "pk"),
    ("findings/audit/", "run_id", "runs.Run", "pk"),
    ("forks/", "pk", "rollouts.Fork", "pk"),
    ("groups/", "pk", "rollouts.Group", "pk"),
    ("imports/", "name", "tasks.ImportedTrajectory", "name"),
    ("measurements/", "pk", "policies.MeasurementOrder", "pk"),
    ("policies/", "name", "policies.Policy", "name"),
    ("review/", "name", "review.Queue", "name"),
    ("review/", "pk", "review.QueueItem", "pk"),
    ("rollouts/", "pk", "rollouts.Rollout", "pk"),
    ("rollouts/exports/", "pk", "rollouts.Export", "pk"),
    ("rollouts/queries/", "pk", "rollouts.SavedQuery", "pk"),
    ("rollouts/waffle/", "run_id", "runs.Run", "pk"),
    ("runs/", "pk", "runs.Run", "pk"),
    ("runs/sweeps/", "pk", "runs.Sweep", "pk"),
    ("runs/templates/", "pk", "runs.RunTemplate", "pk"),
    ("runs/views/", "pk", "runs.SavedView", "pk"),
    ("sessions/", "pk", "gateway.Session", "pk"),
    ("suites/", "name", "tasks.Suite", "name"),
    ("tasks/", "slug", "tasks.Task", "slug"),
    ("projects/", "slug", "accounts.Project", "slug"),
    ("api/v1/projects/", "slug", "accounts.Project", "slug"),
)
PATHS = {"accounts.Project": "pk", "review.QueueItem": "queue__project_id"}
"""Where a model's project is, if not in its own column."""


TOPICS: dict[str, Line] = {
    "run": ("", "run", "runs.Run", "pk"),
    "eval": ("", "eval", "evals.Evaluation", "pk"),
    "group": ("", "group", "rollouts.Group", "pk"),
    "suite": ("", "suite", "tasks.Suite", "pk"),
}
"""Kind of a live topic → what it is about."""
SHARED_TOPIC = "suite"
"""The one kind that a library shares."""


class NoOwner(LookupError):
    """An address has a key that `OBJECTS` does not explain: add its line."""


def installation(route: str) -> bool:
    return route.lstrip("^").startswith(INSTALLATION)


def for_all(route: str) -> bool:
    return route.lstrip("^").startswith(FOR_ALL)


def material(route: str) -> bool:
    return route.lstrip("^").startswith(MATERIAL)


def uses(route: str) -> bool:
    return re.sub(r"<\w+:(\w+)>", r"<\1>", route) in USES


@functools.cache
def line_of(route: str, key: str) -> Line | None:
    """The longest begin that fits; None for a key that names no object. Raises NoOwner."""
    if key in PLAIN or installation(route):
        return None
    fitting = [line for line in OBJECTS if line[1] == key and route.lstrip("^").startswith(line[0])]
    if not fitting:
        raise NoOwner(f"no line of accounts.owners says what {key!r} in {route!r} is")
    return max(fitting, key=lambda line: len(line[0]))


def topic_of(topic: str) -> Line | None:
    """What a live topic such as `run:12` is about; None for those of lists."""
    return TOPICS.get(topic.partition(":")[0]) if ":" in topic else None


def project_of(route: str, keys: dict[str, Any]) -> int | None:
    """Of the first object that the address names; None where it names none, or one that does not exist."""
    for key, value in keys.items():
        if (line := line_of(route, key)) is not None:
            return project_at(line, value)
    return None


def project_at(line: Line, value: object) -> int | None:
    _, _, label, field = line
    if field == "pk" and not str(value).isdigit():
        return None  # the view says what is wrong with it
    path = PATHS.get(label, "project_id")
    rows = apps.get_model(label)._base_manager.filter(**{field: value}).values_list(path, flat=True)
    found: int | None = rows.first()
    return found
