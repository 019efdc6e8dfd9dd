"""/metrics: who may read it, that Prometheus can, and that the numbers are those of the installation."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from composer_web.core.queue import leases
from composer_web.env import REPOSITORY, env
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs import metrics
from composer_web.runs.models import Run
from composer_web.system import prometheus
from tests.web.making import claim, finish
from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import DeploymentSpec, GenerateRequest
from trainer.inference.embedded.serving.process import EmbeddedServer

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def _counted_anew() -> None:
    """What another test's scrape counted is another database's."""
    prometheus.totals.forget()


def test_only_its_own_scope_reads_it(client: Client, bearer: Bearer) -> None:
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer oc_guess"}).status_code == 401
    for role, scope in (("admin", "admin"), ("operator", "operate"), ("operator", "read")):
        assert client.get("/metrics", headers=bearer(role, scope)).status_code == 403
    scraper = bearer("operator", "metrics")
    assert client.get("/metrics", headers=scraper).status_code == 200
    assert client.get("/api/v1/runs", headers=scraper).status_code == 403
    assert client.get("/v1/models", headers=scraper).status_code in (401, 403)


def test_the_numbers_are_those_of_the_installation(client: Client, bearer: Bearer, running: Run) -> None:
    rollouts.pump(run_id=running.pk)
    group = Group.objects.filter(run=running, state="dispatched").first()
    assert group is not None
    claimed = claim(group)
    finish(claimed.group, claimed.held, [True, False])
    metrics.record(run=running, step=1, values={"reward/mean": 0.5, "staleness/max": 1.0})
    leases.take(f"run:{running.pk}", owner="trainer@test", seconds=60)
    client.get("/healthz-no-such-page")
    answer = client.get("/metrics", headers=bearer("operator", "metrics"))
    families = {family.name: family for family in text_string_to_metric_families(answer.content.decode())}

    def value(name: str, **labels: str) -> float:
        return next(s.value for s in families[f"opencomposer_{name}"].samples if s.labels == labels)

    assert value("rollouts", verdict="passed") == Rollout.objects.filter(verdict="passed").count() == 1
    assert value("rollouts", verdict="failed") == 1
    assert value("groups", state="accepted") == 1
    assert value("runs", state="running") == 1
    assert value("run_reward_mean", run=str(running.pk)) == 0.5
    assert value("run_staleness_max", run=str(running.pk)) == 1.0
    assert value("leases", kind="run", state="held") == 1
    assert value("queue_messages", queue="control") >= 0 and value("broker_up") == 1
    assert value("disk_free_bytes") > 0 and value("engine_up") in (0, 1)
    counted = [s for s in families["opencomposer_http_seconds"].samples if s.labels.get("route") == "unknown"]
    assert sum(s.value for s in counted if s.name.endswith("_count")) >= 1


@pytest.mark.integration
def test_how_full_the_cache_of_an_engine_is(
    client: Client, bearer: Bearer, engine: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InferenceAdmin(engine.url) as admin:
        admin.deploy(DeploymentSpec(name="scraped", policy_dir=str(REPOSITORY / "policies" / "base")))
        ask = GenerateRequest(deployment="scraped", prompt_ids=[5, 6, 7], max_tokens=400, temperature=1.0, seed=1)
        httpx.post(f"{engine.url}/generate", json=ask.model_dump(), timeout=60, trust_env=False).raise_for_status()
        monkeypatch.setattr(env(), "inference_url", engine.url)
        text = client.get("/metrics", headers=bearer("operator", "metrics")).content.decode()
    (found,) = [f for f in text_string_to_metric_families(text) if f.name == "opencomposer_engine_cache_share"]
    (share,) = [sample.value for sample in found.samples if sample.labels == {"deployment": "scraped"}]
    assert 0 < share < 1


def test_whole_tables_are_counted_from_indexes_and_not_at_each_scrape(
    client: Client, bearer: Bearer, running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = bearer("operator", "metrics")
    rollouts.pump(run_id=running.pk)

    def counts() -> list[str]:
        with CaptureQueriesContext(connection) as seen:
            assert client.get("/metrics", headers=headers).status_code == 200
        assert len(seen) < 20
        return [query["sql"] for query in seen if "rollouts_" in query["sql"]]

    first = counts()
    assert len(first) == 2 and counts() == []
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # a handful of rows is read quicker without an index
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        for query in first:
            cursor.execute(f"EXPLAIN {query}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "Index Only Scan" in plan and "Seq Scan" not in plan, plan
    monkeypatch.setattr(prometheus, "TOTALS_SECONDS", 0.0)
    assert len(counts()) == 2
