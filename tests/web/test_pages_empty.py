"""An empty product: each page says what to do next."""

from __future__ import annotations

import pytest
from django.test import Client

from composer_web.accounts.models import User

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", ("manage.py importpolicy", "manage.py build_suites", "make demo", "Nothing is running")),
        ("/runs/", ("No runs yet", "Configure a run")),
        ("/rollouts/", ("No rollouts yet",)),
        ("/findings/", ("No findings", "manage.py audit RUN")),
        ("/tasks/", ("No tasks yet", "manage.py build_suites")),
        ("/suites/", ("No suites yet", "generators")),
        ("/environments/", ("No environments yet", "Add your own repository")),
        ("/policies/", ("No policies yet", "manage.py importpolicy")),
        ("/evals/", ("No evaluations yet",)),
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
