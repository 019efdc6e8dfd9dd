"""The main navigation: sections of pages, the current one marked by the address, and the help page of each screen."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django import template
from django.urls import reverse

register = template.Library()


@dataclass(frozen=True)
class Entry:
    """A page of the sidebar. `prefixes`: addresses that belong to it; the longest match of all entries is current."""

    label: str
    icon: str
    name: str
    prefixes: tuple[str, ...]


SECTIONS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    ("", (Entry("Home", "house", "ops:home", ("/",)),)),
    (
        "Train",
        (
            Entry("Runs", "rocket", "runs:list", ("/runs",)),
            Entry("Reports", "file-text", "runs:reports", ("/reports",)),
            Entry("Datasets", "database", "datasets:list", ("/datasets",)),
            Entry("Policies", "brain-circuit", "policies:list", ("/policies",)),
        ),
    ),
    (
        "Review",
        (
            Entry("Rollouts", "list-tree", "rollouts:list", ("/rollouts", "/groups")),
            Entry("Findings", "shield-alert", "rollouts:findings", ("/findings",)),
            Entry("Review queues", "clipboard-check", "review:list", ("/review",)),
        ),
    ),
    (
        "Curate",
        (
            Entry("Tasks", "list-checks", "tasks:list", ("/tasks", "/generators", "/imports")),
            Entry("Suites", "layers", "tasks:suites", ("/suites",)),
            Entry("Drafts", "pencil", "review:drafts", ("/drafts",)),
            Entry("Environments", "folder-git-2", "repositories:list", ("/environments",)),
        ),
    ),
    (
        "Evaluate",
        (
            Entry("Evaluations", "flask-conical", "evals:list", ("/evaluations",)),
            Entry("Leaderboards", "trophy", "evals:releases", ("/evaluations/releases",)),
        ),
    ),
    (
        "Serve",
        (
            Entry("Production", "radio", "policies:promotion", ("/promotion",)),
            Entry("Gateway", "message-square-text", "gateway:sessions", ("/gateway",)),
        ),
    ),
    (
        "Operate",
        (
            Entry("System", "server", "ops:system", ("/system",)),
            Entry("Alerts", "bell", "alerts:list", ("/alerts",)),
        ),
    ),
)

HELP: dict[str, str] = {
    "/": "start/quickstart/",
    "/runs": "concepts/step/",
    "/runs/new": "reference/configuration/",
    "/runs/templates": "how-to/configure-a-run/",
    "/runs/sweeps": "how-to/configure-a-run/",
    "/runs/compare": "guides/reports/",
    "/runs/studies": "how-to/midtrain-study/",
    "/runs/*/charts": "guides/reports/",
    "/runs/*/rollouts": "concepts/rollout/",
    "/runs/*/evals": "guides/benchmark/",
    "/runs/*/config": "reference/configuration/",
    "/runs/*/logs": "how-to/debugging/",
    "/runs/*/system": "guides/operations/",
    "/reports": "guides/reports/",
    "/datasets": "design/learning/",
    "/datasets/corpora": "design/policy/",
    "/datasets/new-corpus": "design/policy/",
    "/policies": "concepts/weight-sync/",
    "/rollouts": "concepts/rollout/",
    "/rollouts/exports": "guides/formats/",
    "/groups": "concepts/group/",
    "/findings": "sandbox/grading/",
    "/review": "guides/review/",
    "/drafts": "guides/review/",
    "/tasks": "concepts/task/",
    "/suites": "concepts/task/",
    "/generators": "sandbox/tasks/",
    "/imports": "guides/formats/",
    "/environments": "guides/repositories/",
    "/evaluations": "guides/benchmark/",
    "/promotion": "concepts/gateway/",
    "/gateway": "concepts/gateway/",
    "/system": "guides/operations/",
    "/system/fidelity": "sandbox/fidelity/",
    "/findings/redteam": "sandbox/red-team/",
    "/alerts": "guides/operations/",
    "/notifications": "guides/operations/",
    "/projects": "guides/team/",
    "/people": "guides/team/",
    "/audit": "guides/team/",
    "/2fa": "guides/team/",
    "/account": "guides/team/",
    "/tokens": "guides/api/",
    "/api": "guides/api/",
}
"""Begin of an address → page of the documentation that explains it; the longest match holds. A star is any number."""
NUMBER = re.compile(r"(?<=/)\d+(?=/)")


@dataclass(frozen=True)
class Item:
    label: str
    icon: str
    url: str
    current: bool


@dataclass(frozen=True)
class Section:
    label: str
    items: list[Item]


def under(path: str, prefix: str) -> bool:
    """Whether an address is `prefix` or lies below it."""
    return path == prefix or path.startswith(f"{prefix.rstrip('/')}/") if prefix != "/" else path == "/"


def current_entry(path: str) -> Entry | None:
    """The entry with the longest prefix that fits."""
    fitting = [
        (len(prefix), entry)
        for _, entries in SECTIONS
        for entry in entries
        for prefix in entry.prefixes
        if under(path, prefix)
    ]
    return max(fitting, key=lambda found: found[0])[1] if fitting else None


@register.simple_tag(takes_context=True)
def nav_sections(context: template.Context) -> list[Section]:
    now = current_entry(context["request"].path)
    return [
        Section(label, [Item(entry.label, entry.icon, reverse(entry.name), entry is now) for entry in entries])
        for label, entries in SECTIONS
    ]


@register.simple_tag(takes_context=True)
def help_page(context: template.Context) -> str:
    """Address of the documentation of this screen."""
    path = NUMBER.sub("*", context["request"].path)
    fitting = [prefix for prefix in HELP if under(path, prefix)]
    return reverse("help:page", args=[HELP[max(fitting, key=len)]]) if fitting else reverse("help:index")
