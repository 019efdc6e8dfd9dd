"""Six tasks to curate, and who curates them."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from composer_web.accounts.models import User
from composer_web.accounts.services import create_user
from composer_web.tasks import selectors
from composer_web.tasks.models import SuiteMembership, Task, TaskVersion
from composer_web.tasks.services import build_suite, record_controls
from tests.browser.episodes import task as spec
from tests.web.conftest import PASSWORD


@pytest.fixture
def tasks(people: dict[str, User]) -> list[Task]:
    """Six tasks of a suite that nobody has used; the first four with controls. No task has the id of a version."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('tasks_taskversion_id_seq', nextval('tasks_task_id_seq') + 100000)")
    suite = build_suite(name="pool", purpose="train", specs=[spec(i) for i in range(6)])
    for version in suite.versions.order_by("pk")[:4]:
        record_controls(version=version, controls={"bundle_hash": version.bundle_hash, "strength": 0.6}, ok=True)
    SuiteMembership.objects.all().delete()
    return list(Task.objects.order_by("pk"))


@pytest.fixture
def other(people: dict[str, User]) -> User:
    return create_user(username="second", password=PASSWORD, role="reviewer")


def newest(task: Task) -> TaskVersion:
    return selectors.newest_version(task)


def state(task: Task) -> str:
    return Task.objects.get(pk=task.pk).review


def browser(user: User) -> Client:
    made = Client()
    made.force_login(user)
    return made
