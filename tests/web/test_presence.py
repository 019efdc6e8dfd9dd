"""Heartbeat rows of real workers: there while they live, gone when they were asked to stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from composer_web.ops.models import WorkerHeartbeat
from tests.web.helpers import eventually
from tests.web.product import Product

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def product(tmp_path: Path, free_port: int) -> Iterator[Product]:
    made = Product(tmp_path, free_port)
    yield made
    made.stop()


def test_a_worker_that_was_stopped_is_not_a_lost_one(product: Product) -> None:
    product.start("control")
    eventually(lambda: WorkerHeartbeat.objects.filter(kind="control").exists(), seconds=120, what="the heartbeat")
    product.running["control"].terminate()
    assert product.running["control"].wait(timeout=120) == 0
    assert not WorkerHeartbeat.objects.filter(kind="control").exists()
