"""The pictures of docs/img: three of every page that `places.py` and `states.py` know, and every page of the product is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import resolve

from composer_web.env import REPOSITORY
from tests.browser.places import ADMIN, FIXED, FOLLOWED, LISTED
from tests.browser.screenshots import LOOKS
from tests.browser.states import FRESH, states
from tests.web.addresses import KEY, pages

PICTURES = REPOSITORY / "docs" / "img"
WALKED = re.compile(r"(walk|feedback)-\d+-")
"""Stations of the long walks (`WALK_PICTURES`): as many looks as the station is worth."""
ADDRESSED = {
    "run": "runs:detail", "sweep": "runs:sweep", "dataset": "datasets:detail", "finding": "rollouts:finding",
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
    "facets/", "count/", "/part/", "/metrics/", "/marks/", "/others/", "/further/", "/turns/", "/search/", "/tokens/",
    "/export/", "export.csv", "/measured/", "/download", "/file/", "config.", "/check/", "preview/", "reconcile/", "metrics",
    "v1/", "figures/",
)  # fmt: skip
"""In the routes of parts of a page, of files, and of what programs read."""
ELSEWHERE = {
    "tasks:review-task", "review:item", "review:new", "account_inactive", "account_logout", "accounts:logout",
    "account_login", "mfa_reauthenticate", "mfa_reauthenticate_webauthn", "mfa_list_webauthn", "mfa_edit_webauthn",
    "mfa_remove_webauthn", "mfa_login_webauthn", "mfa_signup_webauthn", "mfa_trust", "socialaccount_signup",
    "socialaccount_login_cancelled", "socialaccount_login_error", "openid_connect_login", "openid_connect_callback",
    "usersessions_list",
}  # fmt: skip
"""The same page by another address, or a page of allauth that this product does not lead to."""


def names() -> set[str]:
    return {*FIXED, *ADMIN, *LISTED, *FOLLOWED, *states("")} | set(FRESH)


def test_every_page_has_its_three_pictures() -> None:
    wanted = {f"{name}{look and '-'}{look}.png" for name in names() for look in LOOKS}
    there = {path.name for path in PICTURES.iterdir()}
    assert sorted(wanted - there) == []
    assert sorted(name for name in there - wanted if not WALKED.match(name)) == []


@pytest.mark.django_db
def test_every_address_that_is_a_page_is_in_a_picture() -> None:
    """A new page fails here until it is photographed. What only takes a form refuses to be read, whoever asks."""
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


def test_documents_name_pictures_that_are_there() -> None:
    wrong = []
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")):
        for found in re.findall(r"\]\(([^)\s]+\.png)\)", page.read_text()):
            if not (page.parent / Path(found)).is_file():
                wrong.append(f"{page.name}: {found}")
    assert wrong == []
