"""What a suite says of its members is what its members are, whoever changes them, in whatever order and at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.db.models import Count, F, Q
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.tasks.models import Suite, SuiteMembership, Task, TaskVersion
from composer_web.tasks.services import record_controls
from tests.web.helpers import eventually

SECONDS = 60.0


def differences() -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Suites whose counts are not what is counted anew: name, kept, counted."""
    ok, bad = (Count("memberships", filter=Q(memberships__task_version__controls_ok=value)) for value in (True, False))
    rows = Suite.objects.annotate(n=Count("memberships"), ok=ok, bad=bad)
    both = [(s.name, (s.task_count, s.valid_count, s.rejected_count), (s.n, s.ok, s.bad)) for s in rows]
    return [(name, kept, counted) for name, kept, counted in both if kept != counted]


def settle(version: TaskVersion, ok: bool) -> None:
    record_controls(version=version, controls={"bundle_hash": version.bundle_hash}, ok=ok)


@pytest.mark.django_db
def test_counts_follow_every_way_to_change_members(make_suite: Callable[..., Suite]) -> None:
    suites = [make_suite(), make_suite("held-out", 3), Suite.objects.create(name="loose", purpose="benchmark")]
    assert [s.task_count for s in suites] == [12, 3, 0] and not differences()
    versions = list(TaskVersion.objects.order_by("pk"))
    draw = random.Random(4)
    for turn in range(120):
        suite, version = draw.choice(suites), draw.choice(versions)
        match draw.randrange(5):
            case 0:
                settle(version, draw.random() < 0.5)
            case 1:
                TaskVersion.objects.filter(pk__in=[v.pk for v in draw.sample(versions, 4)]).update(controls_ok=None)
            case 2:
                suite.memberships.filter(task_version__in=draw.sample(versions, 3)).delete()
            case 3 if not suite.memberships.filter(task_version=version).exists():
                SuiteMembership.objects.create(suite=suite, task_version=version, position=100 + turn)
            case 4:
                member = suite.memberships.first()
                if member and not suite.memberships.filter(task_version=version).exists():
                    SuiteMembership.objects.filter(pk=member.pk).update(task_version=version)
        assert not differences(), turn
        assert not SuiteMembership.objects.exclude(task=F("task_version__task"), slug=F("task__slug")).exists(), turn
    assert {tuple(v.controls_ok for v in versions)} != {None}
    with pytest.raises(IntegrityError, match="suite_counts_its_members"), transaction.atomic():
        Suite.objects.update(valid_count=99)


@pytest.fixture
def both(transactional_db: None, make_suite: Callable[..., Suite]) -> tuple[Suite, TaskVersion]:
    """A suite, and a version that is in another one."""
    make_suite(count=2)
    return Suite.objects.create(name="loose", purpose="benchmark"), TaskVersion.objects.earliest("pk")


def waits() -> bool:
    """Whether a statement of another connection waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def beside(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    made = threading.Thread(target=run)
    made.start()
    return made


def test_controls_that_are_recorded_while_a_version_joins_are_counted(both: tuple[Suite, TaskVersion]) -> None:
    suite, version = both
    with transaction.atomic():
        SuiteMembership.objects.create(suite=suite, task_version=version, position=0)
        other = beside(lambda: settle(version, True))
        eventually(waits, seconds=SECONDS, what="the recorder waits for who lets the version join")
    other.join(SECONDS)
    assert not other.is_alive() and not differences()
    assert Suite.objects.get(name="loose").valid_count == 1


def test_a_version_that_joins_while_its_controls_are_recorded_counts_with_them(both: tuple[Suite, TaskVersion]) -> None:
    suite, version = both
    with transaction.atomic():
        settle(version, False)
        other = beside(lambda: SuiteMembership.objects.create(suite=suite, task_version=version, position=0))
        eventually(waits, seconds=SECONDS, what="who lets the version join waits for the recorder")
    other.join(SECONDS)
    assert not other.is_alive() and not differences()
    assert Suite.objects.get(name="loose").rejected_count == 1


@pytest.mark.django_db
def test_the_list_of_suites_reads_no_members(make_suite: Callable[..., Suite], people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["viewer"])

    def asked(path: str) -> list[str]:
        client.get(path)
        with CaptureQueriesContext(connection) as seen:
            assert client.get(path).status_code == 200
        return [query["sql"] for query in seen.captured_queries]

    make_suite(count=2)
    first = asked("/suites/?sort=-valid_count")
    make_suite("held-out", 4)
    for n in range(70):
        Suite.objects.create(name=f"s{n}", purpose="benchmark")
    again = asked("/suites/?sort=-valid_count&page=2")
    assert len(again) == len(first) and not any("suitemembership" in sql for sql in again)


@pytest.mark.django_db
def test_a_renamed_task_keeps_its_place_by_name(make_suite: Callable[..., Suite]) -> None:
    suite = make_suite()
    last = suite.memberships.select_related("task").order_by("slug").last()
    assert last is not None and last.task is not None
    Task.objects.filter(pk=last.task.pk).update(slug="0-first-of-all")
    assert suite.memberships.order_by("slug").values_list("slug", flat=True)[0] == "0-first-of-all"
