"""The reconciler finds work that stands still."""

from __future__ import annotations

from io import StringIO

import pytest
import redis
from django.core.management import call_command
from django.db import connection

from composer_web.core.models import Lease, Outbox
from composer_web.env import env
from composer_web.rollouts import services
from composer_web.rollouts.models import Group
from composer_web.runs.models import Run
from composer_web.system.reconcile import ADVISORY_LOCK, Busy, reconcile
from tests.web.making import claim

pytestmark = pytest.mark.django_db

PAST = "2020-01-01T00:00Z"


@pytest.fixture(autouse=True)
def _empty_broker() -> None:
    with redis.Redis.from_url(env().redis_url) as client:
        client.flushdb()


@pytest.fixture
def group(running: Run) -> Group:
    services.pump(run_id=running.pk)
    Outbox.objects.update(sent_at=PAST)
    return Group.objects.filter(run=running).earliest("pk")


def problems() -> dict[str, str]:
    return {f.target: f.action for f in reconcile() if f.target.startswith("group")}


def test_a_group_of_a_living_worker_is_left_alone(group: Group) -> None:
    claim(group)
    assert problems() == {}


def test_a_group_of_a_lost_worker_runs_again(group: Group) -> None:
    claim(group)
    Lease.objects.filter(resource=f"group:{group.pk}").update(expires_at=PAST)
    assert problems() == {f"group {group.pk}": "dispatched again"}
    group.refresh_from_db()
    assert (group.state, group.infra_errors) == ("dispatched", 1)
    assert Outbox.objects.filter(sent_at=None, kwargs__group_id=group.pk).count() == 1
    assert problems() == {}


def test_a_lost_group_is_given_up_after_its_attempts(group: Group) -> None:
    for _ in range(services.MAX_ATTEMPTS):
        claim(group)
        Lease.objects.filter(resource=f"group:{group.pk}").update(expires_at=PAST)
        action = problems()[f"group {group.pk}"]
    assert action == "dropped"


def test_a_lost_message_is_sent_again_but_not_one_that_waits(group: Group) -> None:
    assert problems() == {}  # dispatched just now
    Group.objects.filter(pk=group.pk).update(dispatched_at=PAST)
    with redis.Redis.from_url(env().redis_url) as client:
        client.lpush("rollout", "a message that waits")
        assert problems() == {}
        client.delete("rollout")
    assert problems() == {f"group {group.pk}": "sent again"}
    assert problems() == {}  # its new message is in the outbox


def test_a_dry_run_changes_nothing(group: Group) -> None:
    claim(group)
    Lease.objects.all().update(expires_at=PAST)
    out = StringIO()
    call_command("reconcile", "--dry-run", stdout=out)
    assert f"group {group.pk}: its worker was lost (lease expired): dispatch again" in out.getvalue()
    group.refresh_from_db()
    assert group.state == "running"


@pytest.mark.django_db(transaction=True)
def test_one_reconciler_at_a_time() -> None:
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [ADVISORY_LOCK])
        with pytest.raises(Busy):
            reconcile()
        cursor.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK])
    other.close()
    assert reconcile() == []
