"""Quotas: kept at dispatch, told on the run's page, set by admins."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import DEFAULT_PROJECT, AuditEntry, Project, User
from composer_web.core.errors import UserError
from composer_web.core.queue import leases
from composer_web.policies.models import Checkpoint
from composer_web.quotas import gpus, limits
from composer_web.quotas.models import Quota
from composer_web.quotas.usage import standing
from composer_web.rollouts.dispatch.services import pump
from composer_web.rollouts.models import Group
from composer_web.runs import services
from composer_web.runs.models import Run
from tests.web.making import take_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def owned(running: Run, people: dict[str, User]) -> Run:
    """The running run, made by the operator."""
    Group.objects.filter(run=running).exists()
    Run.objects.filter(pk=running.pk).update(created_by=people["operator"])
    running.refresh_from_db()
    return running


def in_flight(run: Run) -> int:
    return sum(Group.objects.filter(run=run, state__in=["dispatched", "running"]).values_list("size", flat=True))


def test_without_a_quota_nothing_changes(owned: Run) -> None:
    assert pump(run_id=owned.pk) > 1
    assert limits.why_held(owned, group_size=owned.configuration.stage.group_size) == ""  # type: ignore[union-attr]


def test_rollouts_in_flight_are_limited(owned: Run, people: dict[str, User]) -> None:
    size: int = owned.configuration.stage.group_size  # type: ignore[union-attr]
    limits.set_quota(actor=None, user=None, concurrent_rollouts=2 * size - 1)
    assert pump(run_id=owned.pk) == 1
    assert pump(run_id=owned.pk) == 0
    assert in_flight(owned) == size
    told = limits.why_held(owned, group_size=size)
    assert f"{size} of {2 * size - 1} rollouts are in flight" in told
    operator = Client()
    operator.force_login(people["operator"])
    assert "rollouts are in flight and a group needs" in operator.get(f"/runs/{owned.pk}/").content.decode()
    limits.set_quota(actor=None, user=people["operator"], concurrent_rollouts=100 * size)  # one's own wins
    assert pump(run_id=owned.pk) >= 1
    assert limits.why_held(owned, group_size=size) == ""


def test_full_storage_holds_new_groups(owned: Run, people: dict[str, User]) -> None:
    limits.set_quota(actor=None, user=people["operator"], storage_gib=1.0)
    assert owned.policy_out is not None
    Checkpoint.objects.create(policy=owned.policy_out, version=1, kind="step", digest="0" * 64, path="x", bytes=1 << 30)
    assert pump(run_id=owned.pk) == 0
    told = limits.why_held(owned, group_size=owned.configuration.stage.group_size)  # type: ignore[union-attr]
    assert "1.0 of 1 GiB" in told
    Checkpoint.objects.update(bytes=1)
    assert pump(run_id=owned.pk) >= 1


def test_wrong_limits_and_who_sets_them(people: dict[str, User]) -> None:
    wrong: list[dict[str, Any]] = [{"concurrent_rollouts": 0}, {"storage_gib": -1.0}, {"gpu_share": 1.0}, {"gpus": 0}]
    for given in wrong:
        with pytest.raises(UserError) as caught:
            limits.set_quota(actor=None, user=None, **given)
        assert caught.value.field == next(iter(given))
    admin, operator = Client(), Client()
    admin.force_login(people["admin"])
    operator.force_login(people["operator"])
    posted = {"user": people["operator"].pk, "concurrent_rollouts": "8", "gpu_share": "0.5"}
    assert operator.post("/system/quotas/", posted).status_code == 403
    assert Client().get("/system/quotas/").status_code == 302
    assert admin.post("/system/quotas/", posted).status_code == 302
    assert "0 of 8" in operator.get("/system/quotas/").content.decode()
    entry = AuditEntry.objects.get(action="quota.set")
    assert entry.changes[-1]["after"]["concurrent_rollouts"] == 8
    admin.post("/system/quotas/", {"user": people["operator"].pk})
    assert limits.of(user_id=people["operator"].pk, project_id=DEFAULT_PROJECT) == []


def test_shares_count_while_others_run() -> None:
    quota = Quota(gpu_share=0.25)
    assert limits.rollouts_left(quota, limits.Use(rollouts=0, bytes=0, others=0)) > 1000
    assert limits.rollouts_left(quota, limits.Use(rollouts=0, bytes=0, others=12)) == 4
    assert limits.rollouts_left(quota, limits.Use(rollouts=4, bytes=0, others=12)) == 0


def test_a_project_has_a_quota_of_its_own(owned: Run, people: dict[str, User]) -> None:
    """The tighter of the owner's and the project's holds; another project's holds nobody here."""
    size: int = owned.configuration.stage.group_size  # type: ignore[union-attr]
    here, other = Project.objects.get(pk=owned.project_id), Project.objects.create(slug="other", name="Other")
    limits.set_quota(actor=None, project=other, concurrent_rollouts=1)
    limits.set_quota(actor=None, user=people["operator"], concurrent_rollouts=100 * size)
    limits.set_quota(actor=None, project=here, concurrent_rollouts=size)
    assert pump(run_id=owned.pk) == 1
    assert pump(run_id=owned.pk) == 0
    assert "of the project Default" in limits.why_held(owned, group_size=size)
    with pytest.raises(UserError, match="not for both"):
        limits.set_quota(actor=None, user=people["operator"], project=here, storage_gib=1.0)


def test_the_page_counts_for_all_owners_at_once(
    owned: Run, people: dict[str, User], django_assert_num_queries: Any
) -> None:
    here = Project.objects.get(pk=owned.project_id)
    assert pump(run_id=owned.pk) > 1 and owned.policy_out is not None
    Checkpoint.objects.create(policy=owned.policy_out, version=1, kind="step", digest="0" * 64, path="x", bytes=7)
    leases.take(f"run:{owned.pk}", owner="trainer@test", seconds=60)
    with django_assert_num_queries(3):
        now = standing()
    for owner in ({"user_id": people["operator"].pk}, {"project_id": here.pk}, {"user_id": people["viewer"].pk}):
        assert (now.use(**owner), now.trained(**owner)) == (limits.use(**owner), gpus.used(**owner)), owner
    assert now.use(project_id=here.pk).bytes == 7 and now.use(user_id=people["operator"].pk).rollouts > 0


def test_gpus_are_limited_where_a_trainer_takes_a_run(owned: Run, people: dict[str, User]) -> None:
    """One run is trained on one GPU; a second waits and says why, until there is room."""
    second = services.start_run(run=services.create_run(config=owned.configuration, actor=people["operator"]))
    here = Project.objects.get(pk=owned.project_id)
    leases.take(f"run:{owned.pk}", owner="trainer@test", seconds=60)
    limits.set_quota(actor=None, project=here, gpus=1)
    assert gpus.used(project_id=here.pk) == 1
    assert take_run(second) is None
    page = Client()
    page.force_login(people["operator"])
    told = "1 of 1 GPUs are in use and it needs 1"
    assert told in gpus.why_waiting(second) and told in page.get(f"/runs/{second.pk}/").content.decode()
    assert "1 of 1" in page.get("/system/quotas/").content.decode()
    limits.set_quota(actor=None, project=here, gpus=2)
    assert take_run(second) is not None
    second.refresh_from_db()
    assert gpus.why_waiting(second) == ""
    assert gpus.used(project_id=here.pk) == 2, "both are trained"


def test_a_run_that_never_fits_says_so(draft: Run, people: dict[str, User]) -> None:
    wide = {**draft.config, "stage": {**draft.config["stage"], "parallel": {"world_size": 4, "dp_shard": 4}}}
    Run.objects.filter(pk=draft.pk).update(config=wide, created_by=people["operator"])
    draft.refresh_from_db()
    services.start_run(run=draft)
    limits.set_quota(actor=None, user=people["operator"], gpus=2)
    draft.refresh_from_db()
    assert take_run(draft) is None
    assert "it trains on 4 GPUs (parallel.world_size) and 2 is the most" in gpus.why_waiting(draft)
    limits.set_quota(actor=None, user=people["operator"], gpus=4)
    assert take_run(draft) is not None
