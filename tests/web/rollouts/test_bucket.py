"""An installation whose artifacts lie in a bucket: groups are accepted, and batches, pages and exports read them from there."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.env import env
from composer_web.rollouts.dispatch import batches, services
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run, TrainBatch
from tests.support.buckets import new_bucket, s3_endpoint
from tests.web.making import take_run
from tests.web.played import play_dispatched

pytestmark = pytest.mark.django_db


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_endpoint() as endpoint:
        name = new_bucket(endpoint, monkeypatch)
        monkeypatch.setattr(env(), "artifact_store", f"s3://{name}/team-a")
        artifacts.cache_clear()
        yield name
        artifacts.cache_clear()


def test_groups_are_accepted_trained_on_and_shown_from_a_bucket(
    bucket: str, running: Run, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    services.pump(run_id=running.pk)
    assert play_dispatched(running)
    keys = {found["Key"] for found in boto3.client("s3").list_objects_v2(Bucket=bucket)["Contents"]}
    rollout = Rollout.objects.filter(group__run=running, verdict="passed").earliest("pk")
    assert f"team-a/{rollout.artifact_key}" in keys
    held = take_run(running)
    assert held is not None
    batches.want(run=running, held=held, step=1)
    with monkeypatch.context() as outage:
        outage.setattr(artifacts(), "place", f"s3://{bucket}-is-away/team-a")
        with pytest.raises(ArtifactError):
            batches.assign(run_id=running.pk)
    assert not Group.objects.filter(run=running, state="dropped").exists(), "nothing is lost"
    assert batches.assign(run_id=running.pk)
    batch = TrainBatch.objects.get(run=running, step=1)
    assert len(batch.group_ids) == 2
    client = Client()
    client.force_login(people["viewer"])
    shown = client.get(f"/rollouts/{rollout.pk}/")
    assert shown.status_code == 200 and "fix it" in shown.content.decode()
