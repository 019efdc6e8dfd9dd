"""Maps URLs to objects and thereby to projects, in a table of all URLs.

A URL with a key missing from the table is rejected (a test checks all URLs).
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
    "help/", "notifications/", "people/", "promotion/", "gateway/erase/", "gateway/settings/", "system/", "tokens/",
)  # fmt: skip
"""URL prefixes of the whole installation. The account's role applies."""

FOR_ALL = ("api/v1/health", "api/v1/docs", "help/")
"""The subset visible to every account, including through a token of a single project."""

MATERIAL = (
    "api/v1/curation", "api/v1/endpoints", "api/v1/environments", "api/v1/policies", "api/v1/releases", "api/v1/suites",
    "api/v1/tasks", "environments/", "evaluations/releases/", "evaluations/tasks/", "api/v1/evaluations/tasks/", "generators/",
    "imports/", "policies/", "suites/", "tasks/",
)  # fmt: skip
"""URL prefixes of objects that a library shares: readable in every project, writable in their own."""

USES = (
    "evaluations/releases/<benchmark>/<number>/run/", "api/v1/releases/<benchmark>/<number>/evaluations",
    "policies/<name>/evaluate/", "policies/<name>/measure/", "api/v1/policies/<name>/measurements",
)  # fmt: skip
"""Writes that only use shared objects. The results belong to the user's project."""

PLAIN = frozenset({"action", "form", "format", "part", "number", "batch", "scope"})
"""Keys that do not identify an object of a project. A bulk change is looked up among the project's tasks."""

Line = tuple[str, str, str, str]
OBJECTS: tuple[Line, ...] = (
    # begin of the address, key in it, model, its field
    ("api/v1/runs/", "run_id", "runs.Run", "pk"),
    ("api/v1/views/", "view_id", "ui.SavedView", "pk"),
    ("api/v1/runs/views/", "view_id", "ui.SavedView", "pk"),
    ("api/v1/rollouts/queries/", "view_id", "ui.SavedView", "pk"),
    ("api/v1/reports/", "report_id", "runs.Report", "pk"),
    ("api/v1/templates/", "template_id", "runs.RunTemplate", "pk"),
    ("api/v1/sweeps/", "sweep_id", "runs.Sweep", "pk"),
    ("api/v1/studies/", "study_id", "studies.Study", "pk"),
    ("api/v1/rollouts/", "rollout_id", "rollouts.Rollout", "pk"),
    ("api/v1/forks/", "fork_id", "rollouts.Fork", "pk"),
    ("api/v1/exports/", "export_id", "rollouts.Export", "pk"),
    ("api/v1/groups/", "group_id", "rollouts.Group", "pk"),
    ("api/v1/findings/", "finding_id", "rollouts.Finding", "pk"),
    ("api/v1/review/", "name", "review.Queue", "name"),
    ("api/v1/review/", "rollout", "rollouts.Rollout", "pk"),
    ("api/v1/annotations/", "annotation_id", "review.Annotation", "pk"),
    ("api/v1/corpora/", "name", "datasets.Corpus", "name"),
    ("api/v1/datasets/", "dataset_id", "datasets.Dataset", "pk"),
    ("api/v1/drafts/", "draft_id", "review.Draft", "pk"),
    ("api/v1/tasks/", "slug", "tasks.Task", "slug"),
    ("api/v1/tasks/rollouts/", "rollout_id", "rollouts.Rollout", "pk"),
    ("api/v1/tasks/generation-jobs/", "job_id", "tasks.GenerationJob", "pk"),
    ("api/v1/tasks/trajectories/", "name", "tasks.ImportedTrajectory", "name"),
    ("api/v1/curation/tasks/", "slug", "tasks.Task", "slug"),
    ("api/v1/suites/", "name", "tasks.Suite", "name"),
    ("api/v1/policies/", "name", "policies.Policy", "name"),
    ("api/v1/endpoints/", "name", "policies.Policy", "name"),
    ("api/v1/measurements/", "order_id", "policies.MeasurementOrder", "pk"),
    ("api/v1/policy-imports/", "import_id", "policies.PolicyImport", "pk"),
    ("api/v1/gateway/sessions/", "session_id", "gateway.Session", "pk"),
    ("api/v1/gateway/own-sessions/", "client_id", "gateway.Session", "client_id"),
    ("api/v1/evaluations/", "evaluation_id", "evals.Evaluation", "pk"),
    ("api/v1/evaluations/tasks/", "slug", "tasks.Task", "slug"),
    ("api/v1/releases/", "benchmark", "evals.Release", "benchmark"),
    ("api/v1/environments/", "name", "repositories.Environment", "name"),
    ("annotations/", "pk", "review.Annotation", "pk"),
    ("datasets/corpora/", "name", "datasets.Corpus", "name"),
    ("datasets/", "pk", "datasets.Dataset", "pk"),
    ("drafts/", "pk", "review.Draft", "pk"),
    ("environments/", "pk", "repositories.Environment", "pk"),
    ("evaluations/", "pk", "evals.Evaluation", "pk"),
    ("evaluations/releases/", "benchmark", "evals.Release", "benchmark"),
    ("evaluations/tasks/", "slug", "tasks.Task", "slug"),
    ("findings/", "pk", "rollouts.Finding", "pk"),
    ("findings/audit/", "run_id", "runs.Run", "pk"),
    ("forks/", "pk", "rollouts.Fork", "pk"),
    ("generators/jobs/", "pk", "tasks.GenerationJob", "pk"),
    ("groups/", "pk", "rollouts.Group", "pk"),
    ("imports/", "name", "tasks.ImportedTrajectory", "name"),
    ("measurements/", "pk", "policies.MeasurementOrder", "pk"),
    ("policies/", "name", "policies.Policy", "name"),
    ("reports/", "pk", "runs.Report", "pk"),
    ("review/", "name", "review.Queue", "name"),
    ("review/", "pk", "review.QueueItem", "pk"),
    ("rollouts/", "pk", "rollouts.Rollout", "pk"),
    ("rollouts/exports/", "pk", "rollouts.Export", "pk"),
    ("rollouts/waffle/", "run_id", "runs.Run", "pk"),
    ("runs/", "pk", "runs.Run", "pk"),
    ("runs/", "run_id", "runs.Run", "pk"),
    ("runs/sweeps/", "pk", "runs.Sweep", "pk"),
    ("runs/studies/", "pk", "studies.Study", "pk"),
    ("runs/templates/", "pk", "runs.RunTemplate", "pk"),
    ("views/", "pk", "ui.SavedView", "pk"),
    ("gateway/sessions/", "pk", "gateway.Session", "pk"),
    ("suites/", "name", "tasks.Suite", "name"),
    ("tasks/", "slug", "tasks.Task", "slug"),
    ("projects/", "slug", "accounts.Project", "slug"),
    ("api/v1/projects/", "slug", "accounts.Project", "slug"),
)
PATHS = {"accounts.Project": "pk", "review.QueueItem": "queue__project_id"}
"""Path to a model's project, if it has no column of its own."""


TOPICS: dict[str, Line] = {
    "run": ("", "run", "runs.Run", "pk"),
    "log": ("", "run", "runs.Run", "pk"),
    "eval": ("", "eval", "evals.Evaluation", "pk"),
    "group": ("", "group", "rollouts.Group", "pk"),
    "tokens": ("", "group", "rollouts.Group", "pk"),
    "suite": ("", "suite", "tasks.Suite", "pk"),
}
"""Kind of live topic → its object."""
SHARED_TOPIC = "suite"
"""The only kind that a library shares."""


class NoOwner(LookupError):
    """A URL has a key that `OBJECTS` does not define. Add a line for it."""


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
    """Entry with the longest matching prefix. None for a key that identifies no object. Raises NoOwner."""
    if key in PLAIN or installation(route):
        return None
    fitting = [line for line in OBJECTS if line[1] == key and route.lstrip("^").startswith(line[0])]
    if not fitting:
        raise NoOwner(f"no line of accounts.url_resources says what {key!r} in {route!r} is")
    return max(fitting, key=lambda line: len(line[0]))


def topic_of(topic: str) -> Line | None:
    """Object of a live topic such as `run:12`. None for list topics."""
    return TOPICS.get(topic.partition(":")[0]) if ":" in topic else None


def project_of(route: str, keys: dict[str, Any]) -> int | None:
    """Return the project of the first object named by the URL. None if the URL names no object, or one that does not
    exist."""
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
