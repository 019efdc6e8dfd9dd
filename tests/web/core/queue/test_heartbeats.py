"""Heartbeat rows of real workers: there while they live, gone when they were asked to stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from composer_web.core.models import WorkerHeartbeat
from tests.web.forked import ForkedProduct
from tests.web.helpers import eventually

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def product(forked: ForkedProduct) -> Iterator[ForkedProduct]:
    yield forked
    forked.end()


def test_a_worker_that_was_stopped_is_not_a_lost_one(product: ForkedProduct) -> None:
    product.start("control")
    eventually(lambda: WorkerHeartbeat.objects.filter(kind="control").exists(), seconds=120, what="the heartbeat")
    product.terminate("control")
    assert product.running["control"].wait(timeout=120) == 0
    assert not WorkerHeartbeat.objects.filter(kind="control").exists()


def test_the_clock_says_that_it_lives_and_has_one_row(product: ForkedProduct) -> None:
    """Started again, and killed in between, it is the same clock."""
    for _ in range(2):
        WorkerHeartbeat.objects.filter(kind="clock").update(pid=0)
        product.start("beat")
        eventually(
            lambda: WorkerHeartbeat.objects.filter(kind="clock").exclude(pid=0).exists(), seconds=120, what="the clock"
        )
        product.running["beat"].kill()
        product.running["beat"].wait(timeout=60)
    assert WorkerHeartbeat.objects.filter(kind="clock").count() == 1
