"""Screenshots: `places.py` and `states.py` know every page, and `docs/img` holds only what documents show."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import resolve

from composer_web.env import REPOSITORY
from tests.browser.places import ADMIN, FIXED
from tests.web.addresses import KEY, pages

pytestmark = pytest.mark.integration

PICTURES = REPOSITORY / "docs" / "img"
ADDRESSED = {
    "run": "runs:detail", "run-charts": "runs:charts", "run-rollouts": "rollouts:of-run", "run-evals": "runs:evals",
    "run-config": "runs:config", "run-logs": "runs:logs", "run-system": "runs:system", "run-reward": "runs:reward",
    "report": "runs:report", "report-edit": "runs:report-edit",
    "sweep": "runs:sweep", "study": "studies:detail", "dataset": "datasets:detail", "finding": "rollouts:finding",
    "corpus": "datasets:corpus",
    "task": "tasks:detail", "suite": "tasks:suite", "imported": "tasks:trajectory", "draft": "review:draft",
    "review-queue": "review:queue", "environment": "repositories:detail", "policy": "policies:detail",
    "evaluation": "evals:detail", "release": "evals:release", "session": "gateway:session",
    "alert-rule": "alerts:rule-edit", "webhook": "alerts:webhook-edit", "trajectory": "rollouts:detail",
    "group": "rollouts:group", "waffle": "rollouts:waffle", "regressions": "evals:compare",
    "task-history": "evals:task", "task-compare": "tasks:compare", "suite-difficulty": "tasks:suite-difficulty",
    "review-item": "review:next", "sweep-preview": "runs:new", "second-factor": "mfa_authenticate", "join": "accounts:join",
    "totp": "mfa_activate_totp", "totp-off": "mfa_deactivate_totp", "recovery-codes": "mfa_view_recovery_codes",
    "recovery-codes-new": "mfa_generate_recovery_codes", "security-keys-add": "mfa_add_webauthn", "login": "accounts:login",
}  # fmt: skip
"""Name of a picture → the page that it shows, where the address holds something that only the database knows."""
NO_PAGE = (
    "facets/", "count/", "/part/", "/metrics/", "/marks/", "/others/", "/further/", "/turns/", "/partial/", "/search/",
    "/tokens/", "/export/", "export.csv", "/measured/", "/download", "/file/", "config.", "/check/", "preview/", "reconcile/",
    "metrics", "v1/", "figures/", "help/", "/panel/", "runs/recent/", "runs/switch/", "policies/imports/",
    "/annotations/", "snippets/", "failures/", "search/", "hardware/", "/usage/", "/next-failure/", "runs/names/",
    "reports/add/", "bulk/choices/", "/files/",
)  # fmt: skip
"""In the routes of parts of a page, of files, and of what programs read."""
ELSEWHERE = {
    "tasks:review-task", "review:item", "review:new", "account_inactive", "account_logout", "accounts:logout",
    "account_login", "mfa_reauthenticate", "mfa_reauthenticate_webauthn", "mfa_list_webauthn", "mfa_edit_webauthn",
    "mfa_remove_webauthn", "mfa_login_webauthn", "mfa_signup_webauthn", "mfa_trust", "socialaccount_signup",
    "socialaccount_login_cancelled", "socialaccount_login_error", "openid_connect_login", "openid_connect_callback",
    "usersessions_list", "evals:publish", "tasks:suite-open", "accounts:person-invite",
}  # fmt: skip
"""The same page by another address, or a page of allauth that this product does not lead to."""


@pytest.mark.django_db
def test_every_address_that_is_a_page_is_in_a_picture() -> None:
    """A new page fails here until `screenshots.py` knows it. What only takes a form refuses to be read, whoever asks."""
    shown = (
        {resolve(path.split("?")[0]).view_name for path in (FIXED | ADMIN).values()}
        | set(ADDRESSED.values())
        | ELSEWHERE
    )
    missing, visitor = set(), Client()
    for address in pages():
        if address.method != "GET" or any(part in address.route for part in NO_PAGE) or address.route.startswith("^"):
            continue
        path = "/" + KEY.sub("1", address.route)
        name = resolve(path).view_name
        if name not in shown and visitor.get(path).status_code != 405:
            missing.add(f"{address.route} ({name})")
    assert sorted(missing) == []


def test_documents_and_pictures_agree() -> None:
    """Each picture that a document names is there, and no other: the rest are made when somebody wants to look."""
    named = {
        (page.parent / found).resolve()
        for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"))
        for found in re.findall(r"\]\(([^)\s]+\.png)\)", page.read_text())
        if "figures/" not in found  # benches draw those
    }
    assert named == {path.resolve() for path in PICTURES.glob("*.png")}
