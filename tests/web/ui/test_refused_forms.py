"""A refusal never clears a form: every form of every page is sent with texts that are refused, and comes back as it was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from django.db import transaction
from django.test import Client
from django.urls import resolve, reverse

from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.repositories.models import Repository
from composer_web.ui import refused
from tests.browser import seed
from tests.browser.benchmark import remote
from tests.web.addresses import pages
from tests.web.seeded import client, few, the_rest

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

WRONG = "~" + "wrong é " * 60
LONG = "~" + "wrong é " * 4000
"""In a field of one line and of several: no name, no number, no JSON, and too long."""
ACCEPTED = {
    "findings/<int:pk>/decide/", "tasks/controls/run/", "gateway/erase/", "rollouts/bulk/",
    *(f"findings/bulk/{action}/" for action in ("confirmed", "dismissed", "open")),
    *(f"runs/bulk/{action}/" for action in ("start", "pause", "resume", "stop", "archive", "restore")),
}  # fmt: skip
"""Take any text, or none of their own."""
TEXT = {"text", "search", "number", "email", "url", ""}


@dataclass
class Form:
    action: str
    live: bool
    """Sent by htmx, which leaves the page as it is."""
    id: str
    values: list[tuple[str, str]] = field(default_factory=list)
    """What a browser sends beside the texts."""
    texts: dict[str, str] = field(default_factory=dict)
    areas: set[str] = field(default_factory=set)
    buttons: list[tuple[str, str, str]] = field(default_factory=list)
    """(address, name, value)"""


class Page(HTMLParser):
    """The forms of a page that are sent by POST, and the values that were kept for one of them."""

    def __init__(self, path: str, html: str) -> None:
        super().__init__()
        self.path, self.forms, self.kept = path, list[Form](), ""
        self.open: Form | None = None
        self.select: tuple[Form, str] | None = None
        self.area: tuple[Form, str] | None = None
        self.in_kept = False
        self.loose: list[tuple[str, dict[str, str]]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        at = {name: value or "" for name, value in given}
        if tag == "form":
            self.open = None
            if at.get("method") == "post":
                self.open = Form(at.get("action") or self.path, "hx-post" in at, at.get("id", ""))
                self.forms.append(self.open)
        self.in_kept = tag == "script" and at.get("id") == "refused"
        form = next((one for one in self.forms if one.id and one.id == at.get("form")), self.open)
        if form is None or "disabled" in at:
            return
        name, kind = at.get("name", ""), at.get("type", "")
        if tag == "button" and kind != "button":
            form.buttons.append((at.get("formaction") or form.action, name, at.get("value", "")))
        elif tag == "textarea" and name:
            self.area = (form, name)
            form.areas.add(name)
            form.texts[name] = ""
        elif tag == "select" and name:
            self.select = (form, name)
        elif tag == "option" and self.select and ("selected" in at or not self.has(*self.select)):
            chosen, key = self.select
            chosen.values = [pair for pair in chosen.values if pair[0] != key or "multiple" in at]
            chosen.values.append((key, at.get("value", "")))
        elif tag == "input" and name:
            if kind in TEXT:
                form.texts[name] = at.get("value", "")
            elif kind in ("hidden", "radio", "checkbox") and (kind == "hidden" or "checked" in at or "data-tick" in at):
                form.values.append((name, at.get("value", "on")))

    @staticmethod
    def has(form: Form, name: str) -> bool:
        return any(key == name for key, _ in form.values)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.open = None
        elif tag == "select":
            self.select = None
        elif tag == "textarea":
            self.area = None
        self.in_kept = False

    def handle_data(self, data: str) -> None:
        if self.in_kept:
            self.kept += data
        if self.area:
            form, name = self.area
            form.texts[name] += data


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[seed.World]:
    with django_db_blocker.unblock(), transaction.atomic():  # type: ignore[attr-defined]
        made = few()
        the_rest(made.people["operator"], "Quartz")
        remote(made.people["operator"])
        Repository.objects.create(name="near", kind="path", location="/srv/near")
        yield made
        transaction.set_rollback(True)


def looked_at(visitor: Client) -> Iterator[Page]:
    asked = [one for one in pages() if one.method == "GET" and one.role]
    paths = [path for one in asked if (path := one.path(DEFAULT_PROJECT))]
    for path in [*paths, reverse("policies:detail", args=["some-model"])]:
        answer = visitor.get(path)
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            yield Page(path, answer.content.decode())


def test_every_form_keeps_what_was_typed(world: seed.World) -> None:
    visitor, lost, accepted, seen = client(world, "admin"), list[str](), set[str](), set[str]()
    for page in looked_at(visitor):
        for form in page.forms:
            for address, name, value in form.buttons or [(form.action, "", "")]:
                match = resolve(urlsplit(address).path)
                known = match.route.replace("<slug:action>", match.kwargs.get("action", ""))
                if known in seen or not form.texts or form.live:
                    continue
                seen.add(known)
                typed = {key: LONG if key in form.areas else WRONG for key in form.texts}
                sent = {**_lists(form.values), **typed, **({name: value} if name else {})}
                with transaction.atomic():
                    answer = visitor.post(address, sent, headers={"Referer": f"http://testserver{page.path}"})
                    if answer.status_code == 302:
                        back = Page(answer["Location"], visitor.get(answer["Location"]).content.decode())
                        wrong = _missing(back, address, typed) if back.kept else []
                        accepted |= set() if back.kept else {known}
                    else:
                        wrong = _cleared(Page(address, answer.content.decode()), typed)
                    lost += [f"{known}: {answer.status_code}, {one}" for one in wrong]
                    transaction.set_rollback(True)
    assert not lost, "\n".join(lost)
    assert accepted == ACCEPTED
    assert seen > {
        "policies/endpoints/add/",
        "policies/<str:name>/measure/",
        "policies/<str:name>/endpoint/",
        "runs/new/",
    }
    assert len(seen) > 40


def _cleared(there: Page, typed: dict[str, str]) -> list[str]:
    """What a page that shows the form again has not in it."""
    wanted = {key: text.strip() for key, text in typed.items() if not refused.SECRET.search(key)}
    for form in there.forms:
        if wanted.keys() <= form.texts.keys():
            return [f"{key} is cleared" for key, text in wanted.items() if form.texts[key].strip() != text]
    return ["the form is not there"]


def _lists(values: list[tuple[str, str]]) -> dict[str, list[str]]:
    return {key: [value for name, value in values if name == key] for key, _ in values}


def _missing(back: Page, address: str, typed: dict[str, str]) -> list[str]:
    """What a page lacks to show a refused form again."""
    kept = json.loads(back.kept)
    wanted = {key for key in typed if not refused.SECRET.search(key)}
    wrong = [f"{key} is not kept" for key in wanted if [key, typed[key]] not in kept["values"]]
    wrong += [f"{key} is kept" for key, _ in kept["values"] if refused.SECRET.search(key)]
    if kept["path"] != urlsplit(address).path or not any(
        wanted <= found.texts.keys() and address in (found.action, *(button[0] for button in found.buttons))
        for found in back.forms
    ):
        wrong.append(f"{back.path} has no such form")
    return wrong
