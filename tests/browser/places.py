"""Every page of the product by name: those with a fixed address, those found by following the pages' own links, and those that
a person reaches by doing something (`states.py`)."""

from __future__ import annotations

from playwright.sync_api import Page

FIXED = {
    "home": "/",
    "runs": "/runs/",
    "run-form": "/runs/new/",
    "sweeps": "/runs/sweeps/",
    "studies": "/runs/studies/",
    "study-new": "/runs/studies/new/",
    "templates": "/runs/templates/",
    "compare-none": "/runs/compare/",
    "reports": "/reports/",
    "report-new": "/reports/new/",
    "datasets": "/datasets/",
    "dataset-new": "/datasets/new/",
    "corpora": "/datasets/corpora/",
    "corpus-new": "/datasets/new-corpus/",
    "rollouts": "/rollouts/",
    "exports": "/rollouts/exports/",
    "findings": "/findings/",
    "red-team": "/findings/redteam/",
    "tasks": "/tasks/",
    "task-review": "/tasks/review/",
    "task-changes": "/tasks/changes/",
    "disagreements": "/tasks/disagreements/",
    "generators": "/generators/",
    "imports": "/imports/",
    "suites": "/suites/",
    "review": "/review/",
    "annotations": "/annotations/",
    "drafts": "/drafts/",
    "environments": "/environments/",
    "environment-new": "/environments/new/",
    "policies": "/policies/",
    "promotion": "/promotion/",
    "gateway": "/gateway/settings/",
    "sessions": "/gateway/sessions/",
    "evals": "/evaluations/",
    "releases": "/evaluations/releases/",
    "system": "/system/",
    "fidelity": "/system/fidelity/",
    "quotas": "/system/quotas/",
    "projects": "/projects/",
    "project": "/projects/default/",
    "alerts": "/alerts/",
    "alert-rules": "/alerts/rules/",
    "webhooks": "/alerts/webhooks/",
    "deliveries": "/alerts/deliveries/",
    "notifications": "/notifications/",
    "tokens": "/tokens/",
    "security": "/2fa/",
    "security-keys": "/2fa/webauthn/",
    "password": "/account/password/",
    "log-in-sessions": "/account/sessions/",
    "sign-on": "/account/sign-on/",
    "confirm": "/reauthenticate/?next=/2fa/",
    "api": "/api/v1/docs",
}
ADMIN = {"audit": "/audit/", "people": "/people/"}
"""For admins only."""
STRONG = "td.strong a"
LISTED = {
    "run": ("/runs/?kind=rl", STRONG),
    "run-supervised": ("/runs/?kind=midtrain", STRONG),
    "sweep": ("/runs/sweeps/", STRONG),
    "study": ("/runs/studies/", STRONG),
    "report": ("/reports/", STRONG),
    "dataset": ("/datasets/?sort=conversations", "tr:has(.badge:text('done')) td.strong a"),
    "dataset-failed": ("/datasets/", "tr:has(.badge:text('failed')) td.strong a"),
    "corpus": ("/datasets/corpora/?sort=documents", "tr:has(.badge:text('done')) td.strong a"),
    "finding": ("/findings/?severity=high", STRONG),
    "task": ("/tasks/", STRONG),
    "suite": ("/suites/", STRONG),
    "imported": ("/imports/", STRONG),
    "draft": ("/drafts/", STRONG),
    "review-queue": ("/review/", "td.strong a[href*='quality']"),
    "environment": ("/environments/", STRONG),
    "policy": ("/policies/", STRONG),
    "endpoint": ("/policies/", "tr:has(.badge:text('endpoint')) td.strong a"),
    "evaluation": ("/evaluations/?state=finished", STRONG),
    "release": ("/evaluations/releases/?sort=created_at", STRONG),
    "release-refreshed": ("/evaluations/releases/?sort=-created_at", STRONG),
    "session": ("/gateway/sessions/?malformed=0&q=scale", STRONG),
    "alert-rule": ("/alerts/rules/", "a[aria-label='Edit Entropy collapses'], a[aria-label^='Edit ']"),
    "webhook": ("/alerts/webhooks/", "a[aria-label^='Edit ']"),
}
"""Name → the list and what its link is found by; missing where the list has none."""
FOLLOWED = (
    "trajectory", "group", "waffle", "compare", "regressions", "task-history", "task-compare", "suite-difficulty", "review-item",
)  # fmt: skip
"""Found from the pages above."""


def first_link(page: Page, url: str, path: str, selector: str) -> str | None:
    """Address behind the first matching link of a list page."""
    page.goto(url + path)
    page.locator(f"{selector}, .empty").first.wait_for()  # a live table may be between two answers
    links = page.locator(selector)
    return links.first.get_attribute("href") if links.count() else None


def newest_runs(page: Page, url: str) -> list[str]:
    """Ids of the two newest RL runs."""
    page.goto(f"{url}/runs/?kind=rl")
    page.locator("[data-tick], .empty").first.wait_for()
    return [value for box in page.locator("[data-tick]").all()[:2] if (value := box.get_attribute("value"))]


def _followed(page: Page, url: str, found: dict[str, str]) -> dict[str, str | None]:
    trajectory = first_link(page, url, "/rollouts/?verdict=passed", STRONG) or first_link(
        page, url, "/rollouts/", STRONG
    )
    release, newest = found.get("release"), newest_runs(page, url)
    reward = f"{found['run']}reward/" if "run" in found else None
    tabs = ("charts", "rollouts", "evals", "config", "logs", "system") if "run" in found else ()
    return {
        **{f"run-{tab}": f"{found['run']}{tab}/" for tab in tabs},
        "run-reward": reward if reward and page.request.get(url + reward).ok else None,  # for operators only
        "report-edit": f"{found['report']}edit/" if "report" in found else None,
        "trajectory": trajectory,
        "group": first_link(page, url, trajectory, "a:has-text('compare')") if trajectory else None,
        "waffle": f"/rollouts/waffle/{newest[0]}/" if newest else None,
        "compare": "/runs/compare/?" + "&".join(f"run={pk}" for pk in newest) if newest else None,
        "regressions": first_link(page, url, release, "a:has-text('task by task')") if release else None,
        "task-history": first_link(page, url, release, "a[title='This task in every evaluation']") if release else None,
        "task-compare": f"{found['task']}compare/" if "task" in found else None,
        "suite-difficulty": f"{found['suite']}difficulty/" if "suite" in found else None,
        "review-item": f"{found['review-queue']}next/" if "review-queue" in found else None,
    }


def places(page: Page, url: str) -> dict[str, str]:
    """Name → path, of what this person may see."""
    found: dict[str, str | None] = dict(FIXED)
    found |= {name: path for name, path in ADMIN.items() if page.request.get(url + path).ok}
    found |= {name: first_link(page, url, *where) for name, where in LISTED.items()}
    found |= _followed(page, url, {name: path for name, path in found.items() if path})
    return {name: path for name, path in found.items() if path}
