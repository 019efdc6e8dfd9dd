"""CPU, memory, network and GPU use of a run's workers: on its System tab, in its charts and in the API."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.models import Lease, WorkerSample
from composer_web.core.queue import leases
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.dispatch.working_for import runs
from composer_web.rollouts.models import Group
from composer_web.runs.charts import system_metrics
from composer_web.runs.models import Run
from tests.web.helpers import eventually

pytestmark = pytest.mark.django_db
GIB = 1 << 30
HOST = {"host_cpu": 0.5, "host_cores": 4, "host_memory": 8 * GIB, "host_memory_total": 32 * GIB}


@pytest.fixture
def viewer(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["viewer"])
    return client


@pytest.fixture
def measured(running: Run) -> Run:
    """Two minutes in, with a trainer and an engine that worked for it, and another worker that did not."""
    began = timezone.now() - timedelta(minutes=2)
    Run.objects.filter(pk=running.pk).update(started_at=began)
    gpu = {"index": 0, "name": "H100", "utilisation": 0.9, "memory": GIB, "memory_total": 2 * GIB, "power": None}
    for n in range(4):
        at, own = began + timedelta(seconds=15 * n + 1), {"runs": [running.pk], **HOST}
        WorkerSample.objects.create(
            worker="train@a/1", kind="train", host="a", at=at, cpu=2.0, memory=(n + 1) * GIB, received=2 << 20, **own
        )
        WorkerSample.objects.create(
            worker="engine@b/9", kind="engine", host="b", at=at, cpu=1.0, memory=GIB, gpus=[gpu], **own
        )
        WorkerSample.objects.create(worker="rollout@c/1", kind="rollout", host="c", at=at, cpu=9.0, memory=GIB, **HOST)
    running.refresh_from_db()
    return running


def test_the_tab_draws_the_workers_of_the_run(measured: Run, viewer: Client) -> None:
    html = viewer.get(f"/runs/{measured.pk}/system/").content.decode()
    assert "2 processes worked for this run" in html and 'data-axis="time"' in html
    panels = {one.title: one for one in system_metrics.charts(measured)["usage_panels"]}
    assert panels["Process CPU"].shown == ("cpu/train@a/1", "cpu/engine@b/9"), "the trainer first"
    assert panels["GPU utilisation"].labels == ("b GPU 0",)
    keys = "cpu/train@a/1,memory/train@a/1,received/a,gpu/b 0,gpu_power/b 0,cpu/rollout@c/1,no/thing"
    answer = viewer.get(f"/runs/{measured.pk}/system/usage/", {"keys": keys, "axis": "time", "buckets": 240}).json()
    series = answer["series"]
    assert [round(p["x"]) for p in series["cpu/train@a/1"]] == [1, 16, 31, 46]
    assert [p["last"] for p in series["memory/train@a/1"]] == [1.0, 2.0, 3.0, 4.0], "GiB"
    assert series["received/a"][0]["last"] == 2.0 * (1 << 20), "bytes a second"
    assert series["gpu/b 0"][0]["last"] == 0.9 and series["gpu_power/b 0"] == []
    assert series["cpu/rollout@c/1"] == [] and series["no/thing"] == []
    zoomed = viewer.get(f"/runs/{measured.pk}/system/usage/?keys=cpu/train@a/1&from=15&to=32").json()["series"]
    assert [round(p["x"]) for p in zoomed["cpu/train@a/1"]] == [16, 31]
    for wrong in ("from=soon", "to=nan", "buckets=many"):
        refused = viewer.get(f"/runs/{measured.pk}/system/usage/?keys=cpu/train@a/1&{wrong}")
        assert refused.status_code == 422 and "seconds since the start" in refused.json()["error"]["message"]


def test_where_nobody_named_the_run_all_workers_of_its_time_are_shown(measured: Run, viewer: Client) -> None:
    WorkerSample.objects.update(runs=[])
    html = viewer.get(f"/runs/{measured.pk}/system/").content.decode()
    assert "No process has said that it worked for this run" in html and "rollout@c/1" in html
    WorkerSample.objects.all().delete()
    assert "No process reported" in viewer.get(f"/runs/{measured.pk}/system/").content.decode()


def test_a_draft_has_none_yet(draft: Run, viewer: Client) -> None:
    assert "Shown once the run has started" in viewer.get(f"/runs/{draft.pk}/system/").content.decode()
    assert viewer.get(f"/runs/{draft.pk}/system/usage/?keys=cpu/a").json() == {"series": {"cpu/a": []}}
    refused = viewer.get(f"/api/v1/runs/{draft.pk}/system/usage")
    assert refused.status_code == 409 and "has not started" in refused.json()["error"]["message"]


def test_the_api_has_every_worker_and_a_resolution(measured: Run, viewer: Client) -> None:
    found = viewer.get(f"/api/v1/runs/{measured.pk}/system/usage", {"resolution": 30}).json()
    assert found["known"] and [one["worker"] for one in found["workers"]] == ["train@a/1", "engine@b/9"]
    assert [(p["low"], p["high"], p["count"]) for p in found["series"]["memory/train@a/1"]] == [
        (GIB, 2 * GIB, 2),
        (3 * GIB, 4 * GIB, 2),
    ]
    for query, field in (
        ({"since": "2030-01-01T00:00:00Z"}, "since"),
        ({"since": "2026-01-01"}, "since"),
        ({"since": "2020-01-01T00:00:00Z", "resolution": 15}, "resolution"),
        ({"resolution": 1}, "resolution"),
    ):
        refused = viewer.get(f"/api/v1/runs/{measured.pk}/system/usage", query)
        assert refused.status_code == 422 and field in str(refused.json()["error"]), query
    whole = viewer.get("/api/v1/health/usage", {"worker": "rollout@c/1"}).json()
    assert [one["worker"] for one in whole["workers"]] == ["rollout@c/1"] and "cpu/rollout@c/1" in whole["series"]


@pytest.mark.django_db(transaction=True)  # the keeper's thread looks for the leases over a connection of its own
def test_a_worker_works_for_the_runs_of_its_leases(measured: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts.pump(run_id=measured.pk)
    group = Group.objects.filter(run=measured).earliest("pk")
    keeper = leases.Keeper()
    monkeypatch.setattr(leases, "keeper", keeper)
    assert runs() == []
    kept = []
    for resource in (f"group:{group.pk}", "snapshots"):
        held = leases.take(resource, owner="rollout@a/1", seconds=60)
        assert held is not None
        kept.append((held, Lease.objects.get(pk=resource).expires_at))
        keeper.keep(held)
    assert runs() == [measured.pk]
    for held, until in kept:  # the thread has nothing left to do when the test ends
        eventually(lambda: Lease.objects.get(pk=held.resource).expires_at > until, what="an extension")  # noqa: B023
        keeper.drop(held)
