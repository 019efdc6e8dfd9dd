"""What the command palette finds: pages, runs, reports, rollouts, tasks, suites, policies, evaluations, and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from composer_web.accounts.models import User
from composer_web.core.numbers import row_ids
from composer_web.evals import selectors as evals
from composer_web.policies import selectors as policies
from composer_web.rollouts import selectors as rollouts
from composer_web.runs import actions
from composer_web.runs import selectors as runs
from composer_web.runs.models import Run
from composer_web.runs.reports import services as reports
from composer_web.tasks import selectors as tasks
from composer_web.ui.templatetags.nav import SECTIONS

EACH = 6
"""Number of results of one kind."""


@dataclass(frozen=True)
class Hit:
    """One line of the palette. `command`: something that the browser does; `post`: `url` is sent a form, after `confirm`."""

    title: str
    icon: str
    url: str = ""
    detail: str = ""
    command: str = ""
    post: bool = False
    confirm: str = ""


@dataclass(frozen=True)
class Group:
    title: str
    items: list[Hit]


MORE: tuple[tuple[str, str, str, str], ...] = (
    ("Sweeps", "list-tree", "runs:sweeps", "viewer"),
    ("Mid-training studies", "flask-conical", "studies:list", "viewer"),
    ("Run templates", "file-text", "runs:templates", "viewer"),
    ("Compare runs", "git-compare", "runs:compare", "viewer"),
    ("Exports", "download", "rollouts:exports", "viewer"),
    ("Red team", "shield-alert", "rollouts:redteam", "viewer"),
    ("Task review", "clipboard-check", "tasks:review", "reviewer"),
    ("Task changes", "history", "tasks:changes", "viewer"),
    ("Disagreements between reviewers", "users", "tasks:disagreements", "viewer"),
    ("Task generators", "sparkles", "tasks:generators", "viewer"),
    ("Imports", "upload", "tasks:imports", "viewer"),
    ("Gateway settings", "settings", "gateway:settings", "viewer"),
    ("Sandbox fidelity", "eye", "ops:fidelity", "viewer"),
    ("Quotas", "gauge", "ops:quotas", "viewer"),
    ("Alert rules", "bell", "alerts:rules", "viewer"),
    ("Webhooks", "globe", "alerts:webhooks", "viewer"),
    ("Notifications", "inbox", "alerts:notices", "viewer"),
    ("API tokens", "key-round", "accounts:tokens", "viewer"),
    ("Projects", "folder", "accounts:projects", "viewer"),
    ("People", "users", "accounts:people", "admin"),
    ("Audit log", "scroll-text", "accounts:audit", "admin"),
    ("API documentation", "book-open", "api-docs", "viewer"),
    ("Help", "circle-help", "help:index", "viewer"),
)
"""Pages beside those of the sidebar, with the least role."""

DO: tuple[tuple[str, str, str, str], ...] = (
    ("New run", "plus", "runs:new", "operator"),
    ("New mid-training study", "plus", "studies:new", "operator"),
    ("New report", "plus", "runs:report-new", "operator"),
    ("New review queue", "plus", "review:list", "operator"),
    ("New dataset", "plus", "datasets:new", "operator"),
    ("New corpus", "plus", "datasets:corpus-new", "operator"),
    ("Add a repository", "plus", "repositories:new", "operator"),
    ("Import tasks", "upload", "tasks:imports", "operator"),
)
COMMANDS: tuple[tuple[str, str, str, str], ...] = (
    ("Help on this page", "circle-help", "help", "F1"),
    ("Switch between dark and light", "moon", "theme", ""),
    ("Collapse or expand the sidebar", "panel-left", "sidebar", "Ctrl B"),
    ("Keyboard shortcuts", "keyboard", "shortcuts", "?"),
)


def matches(text: str, title: str) -> bool:
    """Whether each word of `text` begins a word of the title, or is part of it."""
    return all(word in title.lower() for word in text.lower().split())


def search(user: User, text: str, *, here: Run | None = None) -> list[Group]:
    """Groups of results, the most likely first. Without a text: recent runs, actions and pages. `here`: the run of the page
    from which it is asked, whose actions come first."""
    kinds: list[tuple[str, Callable[[], Iterator[Hit]]]] = [
        ("This run", lambda: _actions(user, [here] if here else [], text)),
        ("Runs", lambda: _runs(text)),
        ("Reports", lambda: _reports(text)),
        ("Tasks", lambda: _tasks(text)),
        ("Rollouts", lambda: _rollouts(text, here)),
        ("Suites", lambda: _suites(text)),
        ("Policies", lambda: _policies(text)),
        ("Evaluations", lambda: _evaluations(text)),
        ("Actions", lambda: _do(user, text)),
        ("Pages", lambda: _pages(user, text)),
    ]
    found = [Group(title, list(hits())) for title, hits in kinds]
    return [group for group in found if group.items]


def as_json(groups: list[Group]) -> dict[str, list[dict[str, object]]]:
    return {"groups": [asdict(group) for group in groups]}


def _pages(user: User, text: str) -> Iterator[Hit]:
    for section, entries in SECTIONS:
        for entry in entries:
            if matches(text, f"{entry.label} {section}"):
                yield Hit(entry.label, entry.icon, reverse(entry.name), section)
    if text:
        for label, icon, name, role in MORE:
            if user.may(role) and matches(text, label):
                yield Hit(label, icon, reverse(name))


def _do(user: User, text: str) -> Iterator[Hit]:
    for label, icon, name, role in DO:
        if user.may(role) and matches(text, label):
            yield Hit(label, icon, reverse(name))
    for label, icon, command, keys in COMMANDS:
        if matches(text, label):
            yield Hit(label, icon, command=command, detail=keys)


def _actions(user: User, found: list[Run], text: str) -> Iterator[Hit]:
    """What the user may do to these runs."""
    if not user.may("operator"):
        return
    for run in found:
        for action in actions.possible(run):
            if matches(text, f"{action.label} {run.name}"):
                confirm = f"{action.label} “{run.name}”? {action.confirm}" if action.confirm else ""
                url = reverse("runs:action", args=[run.pk, action.name])
                yield Hit(f"{action.label} {run.name}", "zap", url, f"run {run.pk}", post=True, confirm=confirm)
        if matches(text, f"duplicate {run.name}"):
            yield Hit(f"Duplicate {run.name}", "git-fork", f"{reverse('runs:new')}?from={run.pk}")


def _runs(text: str) -> Iterator[Hit]:
    rows = runs.recent(count=EACH) if not text else runs.named(text, row_ids([text.lstrip("#")]), count=EACH)
    for run in rows:
        detail = f"#{run.pk} · {run.get_kind_display()} · {run.state}"
        yield Hit(run.name, "rocket", reverse("runs:detail", args=[run.pk]), detail)


def _reports(text: str) -> Iterator[Hit]:
    for report in reports.reports().filter(title__icontains=text)[:EACH] if text else ():
        yield Hit(report.title, "file-text", reverse("runs:report", args=[report.pk]), report.description[:60])


def _rollouts(text: str, here: Run | None) -> Iterator[Hit]:
    """A rollout by its number; all rollouts of a task by its name, in the run of the page alone if there is one."""
    for pk in row_ids([text.lstrip("#")]):
        for rollout in rollouts.rollout_rows().filter(pk=pk):
            slug = rollout.group.task_version.task.slug
            detail = rollout.verdict or rollout.state
            yield Hit(
                f"Rollout {pk}: {slug}", "list-tree", reverse("rollouts:detail", args=[pk]), detail.replace("_", " ")
            )
    for task in tasks.tasks().filter(slug__icontains=text)[:EACH] if text else ():
        query = {"task": task.slug, **({"run": here.pk} if here else {})}
        detail = f"in {here.name}" if here else "in all runs"
        yield Hit(f"Rollouts of {task.slug}", "list-tree", f"{reverse('rollouts:list')}?{urlencode(query)}", detail)


def _tasks(text: str) -> Iterator[Hit]:
    for task in tasks.tasks().filter(slug__icontains=text)[:EACH] if text else ():
        yield Hit(task.slug, "list-checks", reverse("tasks:detail", args=[task.slug]), task.source)


def _suites(text: str) -> Iterator[Hit]:
    for suite in tasks.suites().filter(name__icontains=text)[:EACH] if text else ():
        yield Hit(suite.name, "layers", reverse("tasks:suite", args=[suite.name]), suite.purpose)


def _policies(text: str) -> Iterator[Hit]:
    for policy in policies.policies().filter(name__icontains=text)[:EACH] if text else ():
        yield Hit(policy.name, "brain-circuit", reverse("policies:detail", args=[policy.name]))


def _evaluations(text: str) -> Iterator[Hit]:
    """Evaluations by their number, and the newest of a policy, suite or benchmark by its name."""
    if not text:
        return
    named = Q(policy__name__icontains=text) | Q(suite__name__icontains=text) | Q(release__benchmark__icontains=text)
    found = evals.evaluations().filter(named | Q(pk__in=row_ids([text.lstrip("#")])))
    for item in found.order_by("-pk")[:EACH]:
        title = f"Evaluation {item.pk}: {item.policy.name}@{item.version}"
        url = reverse("evals:detail", args=[item.pk])
        yield Hit(title, "flask-conical", url, f"{item.release or item.suite.name} · {item.state}")
