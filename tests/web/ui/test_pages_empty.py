"""An empty product: each page says what to do next."""

from __future__ import annotations

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.runs.models import Run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", ("Get started", "opencomposer policies create", "Create suites of tasks", "Load sample data")),
        ("/runs/", ("No runs yet", "Configure a run")),
        ("/rollouts/", ("No rollouts yet",)),
        ("/findings/", ("No findings", "opencomposer findings start RUN")),
        ("/tasks/", ("No tasks yet", "manage.py build_suites")),
        ("/suites/", ("No suites yet", "generators")),
        ("/environments/", ("No environments yet", "Add your own repository")),
        ("/policies/", ("No policies yet", "a GGUF file above")),
        ("/evaluations/", ("No evaluations yet",)),
        ("/system/", ("No process has reported", "make up")),
        ("/tokens/", ("No tokens yet",)),
    ],
)
def test_empty_pages_name_the_next_step(path: str, words: tuple[str, ...]) -> None:
    visitor = Client()
    visitor.force_login(User.objects.create_user(username="first", role="operator"))
    html = visitor.get(path).content.decode()
    for text in words:
        assert text in html, text


@pytest.mark.parametrize("path", ["/runs/", "/tasks/"])
def test_facets_wait_in_the_filters_until_they_are_opened(path: str) -> None:
    visitor = Client()
    visitor.force_login(User.objects.create_user(username="first", role="operator"))
    page = visitor.get(path).content.decode()
    assert 'hx-trigger="toggle from:closest details once"' in page.partition('id="facets"')[2].partition(">")[0]
    narrowed = visitor.get(f"{path}?q=x").content.decode()
    assert f"{path}facets/?q=x" in narrowed, "counts under the filters in force"
    assert ">Clear</a>" in narrowed, "filters can be taken back"
    assert "HX-Trigger" not in visitor.get(path, headers={"HX-Request": "true"}).headers


@pytest.mark.parametrize("path", ["/runs/", "/tasks/"])
def test_facets_are_there_with_the_first_row(path: str, draft: Run) -> None:
    visitor = Client()
    visitor.force_login(User.objects.create_user(username="first", role="operator"))
    assert 'class="facets"' in visitor.get(path).content.decode()
    assert visitor.get(path, headers={"HX-Request": "true"})["HX-Trigger"] == "oc:rows"
