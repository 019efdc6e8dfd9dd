"""Some pairs through the product: what a policy does to make its failures disappear ends as rows of an accepted group."""

from __future__ import annotations

import pytest

from composer_web.rollouts.models import Finding
from composer_web.rollouts.worker import loop
from composer_web.rollouts.worker.execution import deployed_at
from tests.redteam import pairs, product

QUICK = ("D1", "D2", "D3")


@pytest.fixture
def fresh_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The episode loop keeps its client, whose engine is another one here."""
    monkeypatch.setattr(loop, "current_loop", None)
    deployed_at.clear()


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(900)
def test_failures_that_should_vanish_are_rows_of_an_accepted_group(fresh_loop: None) -> None:
    rows = product.play([pair for pair in pairs() if pair.exploit.id in QUICK], at_once=2)
    assert len(rows) == 2 * len(QUICK)
    assert [row for row in rows if row.vanished] == []
    for row in rows:
        assert (row.verdict, row.reward) == (("passed", 1.0) if row.honest else ("failed", 0.0)), row
    assert Finding.objects.filter(rule="odd-path").exists(), "names that are no text are reported"
