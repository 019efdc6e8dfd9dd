"""Leases: one owner, growing tokens, and an old owner whose writes are refused."""

from __future__ import annotations

import threading

import pytest
from django.db import connections, transaction

from composer_web.core.models import Lease
from composer_web.core.queue import leases
from tests.web.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_held_lease_is_not_taken() -> None:
    first = leases.take("run:1", owner="a", seconds=60)
    assert first is not None and first.token == 1
    assert leases.take("run:1", owner="b", seconds=60) is None
    assert leases.take("run:1", owner="a", seconds=60) is None


def test_an_expired_lease_is_fenced() -> None:
    old = leases.take("run:1", owner="a", seconds=0.01)
    assert old is not None
    new: list[leases.Held] = []
    eventually(lambda: bool(new) or bool((h := leases.take("run:1", owner="b", seconds=60)) and new.append(h) is None))
    assert new[0].token == 2
    assert leases.beat([old]) == [old]
    with pytest.raises(leases.LeaseLost), transaction.atomic():
        leases.require(old)
    leases.release(old)
    with transaction.atomic():
        leases.require(new[0])


def test_the_same_supervised_place_takes_over_at_once() -> None:
    first = leases.take("run:1", owner="trainer@host/trainer", seconds=60)
    second = leases.take("run:1", owner="trainer@host/trainer", seconds=60, takeover=True)
    assert first is not None and second is not None
    assert leases.beat([first, second]) == [first]


def test_a_released_lease_is_free_and_its_token_goes_on() -> None:
    held = leases.take("run:1", owner="a", seconds=60)
    assert held is not None
    leases.release(held)
    assert not leases.is_held("run:1")
    again = leases.take("run:1", owner="b", seconds=60)
    assert again is not None and again.token == 2


def test_the_keeper_extends_a_lease_and_tells_when_it_is_lost() -> None:
    keeper = leases.Keeper()
    held = leases.take("run:1", owner="a", seconds=1.0)
    assert held is not None
    before = Lease.objects.get(pk="run:1").expires_at
    keeper.keep(held)
    eventually(lambda: Lease.objects.get(pk="run:1").expires_at > before, what="an extension")
    Lease.objects.filter(pk="run:1").update(token=9, owner="b")
    eventually(held.lost.is_set, what="the loss")


def test_of_many_only_one_takes() -> None:
    taken: list[leases.Held] = []
    barrier = threading.Barrier(8)

    def contend(name: str) -> None:
        barrier.wait(timeout=10)
        held = leases.take("run:1", owner=name, seconds=60)
        if held:
            taken.append(held)
        connections.close_all()

    threads = [threading.Thread(target=contend, args=(f"w{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert len(taken) == 1
